"""
Text: a sparse matrix of words
==============================

Words are columns, most entries are zero. A logistic model with twenty words separates two kinds of
messages; the matrix is never made dense.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import cross_val_score

from trimreg import TrimmedLogisticRegression

rng = np.random.default_rng(0)
common = [f"word{i}" for i in range(800)]
sport, space = ["match", "goal", "team", "coach", "season"], ["orbit", "rocket", "launch", "moon", "crew"]
texts, topics = [], rng.integers(0, 2, 400)
for topic in topics:
    words = rng.choice(common, 40).tolist() + rng.choice(space if topic else sport, 3).tolist()
    texts.append(" ".join(rng.permutation(words)))
vectors = TfidfVectorizer()
X = vectors.fit_transform(texts)
words = vectors.get_feature_names_out()

model = TrimmedLogisticRegression(h=10, l2=1e-3).fit(X, topics)
order = np.argsort(model.coef_.ravel()[model.support_])
fig, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
chosen = model.support_[order]
ax.barh(
    words[chosen],
    model.coef_.ravel()[chosen],
    color=["#d55e00" if w in space else "#0072b2" for w in words[chosen]],
)
ax.set(xlabel="coefficient (red: words of space flight)")
share = X.nnz / np.prod(X.shape)
print(f"{X.shape[0]} texts, {X.shape[1]} words, {100 * share:.1f} % of the entries are not zero")
print("accuracy in five folds:", cross_val_score(model, X, topics, cv=5).mean().round(2))
