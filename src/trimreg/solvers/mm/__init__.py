"""The default solver: majorize-minimize by working sets."""
