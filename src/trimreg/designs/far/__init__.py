"""Data that are not in memory: on disk (npy, Zarr, Parquet) or on a Dask cluster."""
