"""Rows that lie elsewhere: on disk (npy, Zarr, Parquet) or on a Dask cluster."""
