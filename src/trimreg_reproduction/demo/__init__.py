"""The demonstration: the diabetes data with all second-order terms."""
