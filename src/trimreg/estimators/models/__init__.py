"""The classes of scikit-learn's kind, one file per family."""
