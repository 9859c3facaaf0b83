"""Small extensions of Sphinx that make the site."""
