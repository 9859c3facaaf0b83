"""
Few features that tell malignant from benign
============================================

569 tumors, 30 measurements. Three of them classify nearly as well as all.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from trimreg import TrimmedLogisticRegression

data = load_breast_cancer()
X, y = StandardScaler().fit_transform(data.data), data.target
sizes = [1, 2, 3, 5, 8]
scores = [
    cross_val_score(TrimmedLogisticRegression(h=h, l2=0.01), X, y, cv=5, scoring="roc_auc") for h in sizes
]
full = cross_val_score(
    make_pipeline(StandardScaler(), LogisticRegression()), data.data, y, cv=5, scoring="roc_auc"
)

fig, ax = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
ax.errorbar(sizes, [s.mean() for s in scores], [s.std() / 5**0.5 for s in scores], fmt="o-", color="#0072b2",
            label="trimmed, h features")  # fmt: skip
ax.axhline(full.mean(), color="0.5", ls="--", label="ridge, all 30")
ax.set(xlabel="h", ylabel="area under the ROC curve, 5 folds")
ax.legend(loc="lower right")
model = TrimmedLogisticRegression(h=3, l2=0.01).fit(X, y)
print("three features:", data.feature_names[model.support_].tolist())
