"""Groups of parameters that are kept or removed together, and the names by which a user asks for them."""
