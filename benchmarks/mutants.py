"""Do the tests notice a wrong formula? ``python -m benchmarks.mutants`` puts one error at a time into the source.

A mutant is a piece of a line and what it is replaced by. It is *killed* if the tests of its room fail, or those of the ridge
term. The source is copied, so that the working tree stays as it is. A piece must stand exactly once in its room:
when the code changes, so must this list, or the run ends with an error.

    python -m benchmarks.mutants              # all rooms
    python -m benchmarks.mutants losses       # some
    python -m benchmarks.mutants --json killed.json
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from trimreg._files import write_atomically

ROOT = Path(__file__).parent.parent
#: The ridge term and certificates go through all rooms; their tests stand in one.
EVERYWHERE = ("estimators/test_ridge.py", "estimators/test_certificate.py")


class Mutant(NamedTuple):
    """One error: where (a pattern of file paths below the package), what, and by what it is replaced."""

    where: str
    piece: str
    by: str

    @property
    def room(self) -> str:
        return self.where.split("/")[0]

    def file(self, source: Path) -> Path:
        """The one file with the piece; a ValueError unless the piece stands there exactly once."""
        found = [
            path
            for path in sorted(source.rglob("*.py"))
            if re.search(self.where, str(path.relative_to(source)))
            for _ in range(path.read_text(encoding="utf-8").count(self.piece))
        ]
        if len(found) != 1:
            raise ValueError(f"{self.piece!r} stands {len(found)} times in {self.where}; mend the list")
        return found[0]


# fmt: off
MUTANTS = [Mutant(*row) for row in (
    # penalties: values, weight rules, proxes, projections, norms
    ("penalties/mcp", "level * size - size**2 / (2 * self.gamma)", "level * size - size**2 / self.gamma"),
    ("penalties/mcp", "np.maximum(1.0 - size / self._end(level), 0.0)", "np.maximum(1.0 + size / self._end(level), 0.0)"),
    ("penalties/mcp", "curvature = 1.0 - step / self.gamma", "curvature = 1.0 + step / self.gamma"),
    ("penalties/scad", "linear + level * t - t**2 / (2 * (self.gamma - 1))", "linear + level * t - t**2 / (2 * self.gamma)"),
    ("penalties/scad", "np.clip((self.gamma - size / level) / (self.gamma - 1), 0.0, 1.0)", "np.clip((self.gamma - size / level) / self.gamma, 0.0, 1.0)"),
    ("penalties/scad", "numerator = size - step * self.gamma * level / (self.gamma - 1)", "numerator = size - step * level / (self.gamma - 1)"),
    ("penalties/folded", "step = step / unit**2", "step = step / unit"),
    ("penalties/trimmed_l1", "saving = clipped * (size - clipped / 2)", "saving = clipped"),
    ("penalties/trimmed_l1", "penalized = r.size - self.n_free", "penalized = r.size - self.n_free - 1"),
    ("penalties/trimmed_l1", "(count - self.n_free) / count if count else 0.0", "self.n_free / count if count else 0.0"),
    ("penalties/trimmed_l1", "return part + distance_to_optimal_weights(magnitude, weights[j])", "return part"),
    ("penalties/trimmed_l1", "weights[largest(factor * size, self.n_free, tie)] = 0.0", "weights[largest(size, self.n_free, tie)] = 0.0"),
    ("penalties/", "np.argsort(-tie_break[tied], kind=\"stable\")", "np.argsort(tie_break[tied], kind=\"stable\")"),
    ("penalties/simplex", "xp.clip(gap, None, 0.0)", "xp.clip(gap, 0.0, None)"),
    ("penalties/norms", "least = np.where(theta <= bounds[0], -np.inf, least)", "least = np.where(theta <= bounds[1], -np.inf, least)"),
    ("penalties/norms", "away = gradient + np.sign(theta) * threshold", "away = gradient - np.sign(theta) * threshold"),
    ("penalties/norms", "factor = np.where(length > threshold, 1.0 - threshold / length, 0.0)", "factor = np.where(length > threshold, 1.0, 0.0)"),
    ("penalties/norms", "return self.spread(self._euclidean(norms) / np.sqrt(self.sizes))", "return self.spread(self._euclidean(norms))"),
    ("penalties/slope", "weights = 1.0 + q * (p - rank)", "weights = 1.0 + q * rank"),
    ("penalties/slope", "np.maximum(_falling_fit(size[order] - weights), 0.0)", "np.maximum(size[order] - weights, 0.0)"),
    ("penalties/base", "np.where(self._excluded, np.inf, self._factor / per_part)", "np.where(self._excluded, np.inf, self._factor * per_part)"),
    ("penalties/base", "self.norm.dual_lengths(gradient)[j] / self._factor[j]", "self.norm.dual_lengths(gradient)[j]"),
    # losses: values, slopes, curvatures, bounds
    ("losses/quadratic", "return 0.5 * float(np.dot(d * residual, residual))", "return float(np.dot(d * residual, residual))"),
    ("losses/quadratic", "return n * float(np.log(max(2.0 * self.value(eta, y, d), SMALLEST)))", "return n * float(np.log(max(self.value(eta, y, d), SMALLEST)))"),
    ("losses/classes/logistic", ".where(eta > 0, (1.0 - y) * eta, -y * eta)", ".where(eta > 0, (1.0 - y) * eta, y * eta)"),
    ("losses/classes/logistic", "return d * (small / (1.0 + small) ** 2)", "return d * (small / (1.0 + small))"),
    ("losses/classes/logistic", "return float(np.sqrt(0.5 * max(weighted_sum(d, excess), 0.0)))", "return float(np.sqrt(0.1 * max(weighted_sum(d, excess), 0.0)))"),
    ("losses/classes/multinomial", "else -p[:, m])", "else p[:, m])"),
    ("losses/classes/multinomial", "return predictor - predictor.mean()", "return predictor"),
    ("losses/log_link/poisson", "return exp(eta) - y * eta", "return exp(eta) + y * eta"),
    ("losses/log_link/poisson", "excess + np.sqrt(excess * (excess + 2.0 * d * y))", "np.sqrt(excess * (excess + 2.0 * d * y))"),
    ("losses/log_link/gamma", "return d * (1.0 - bounded_exp(np.log(y) - eta))", "return d * (1.0 + bounded_exp(np.log(y) - eta))"),
    ("losses/log_link/negative_binomial", "return d * ((mean - y) / (1.0 + a * mean))", "return d * ((mean - y) / (1.0 + mean))"),
    ("losses/log_link/negative_binomial", "if not slope(-np.inf) < 0:", "if slope(-np.inf) < 0:"),
    ("losses/classes/ordinal", "return d * (above - below)", "return d * (above + below)"),
    ("losses/quantile", "0.25 / smoothing", "0.025 / smoothing"),
    ("losses/log_link/gamma", "return float(np.log(d @ y))", "return float(d @ np.log(y))"),
    ("losses/huber", "losses = 0.5 * within * (within / scale) + self.epsilon * (size - within)", "losses = 0.5 * within * (within / scale) + self.epsilon * size"),
    ("losses/huber", "following = (total - epsilon**2 * float(d[outside].sum())) / slope", "following = total / slope"),
    ("losses/cox/terms", "log_rest = log_risk[dead_group] + np.log1p(-fraction * np.minimum(share, 1.0))", "log_rest = log_risk[dead_group]"),
    ("losses/cox/terms", "reduced = np.logaddexp.reduceat(log_terms + np.log1p(-self.fraction), first)", "reduced = np.logaddexp.reduceat(log_terms, first)"),
    ("losses/cox/terms", "np.lexsort((late, *pairs))", "np.lexsort((~late, *pairs))"),
    ("losses/cox/terms", "np.searchsorted(with_event, group, side=\"right\") - event", "np.searchsorted(with_event, group, side=\"right\")"),
    ("losses/cox/terms", "tied *= (1.0 - self.fraction)[:, None]", "tied *= self.fraction[:, None]"),
    ("losses/cox/loss", "return float(np.sqrt(mass + mass**2 / d[at_risk].min()))", "return float(np.sqrt(mass))"),
    ("losses/multitask", "return 0.5 * np.sum((eta - y) ** 2, axis=1)", "return 0.5 * np.mean((eta - y) ** 2, axis=1)"),
    ("estimators/survival", "counts -= _pairs(", "counts += _pairs("),
    ("estimators/survival", "below + (total[last] - total[first]) / 2", "below"),
    # solvers: Algorithm 1 and its peers, kernels, searches
    ("solvers/first_order/bcd|solvers/bcd", "max(2.0 * L_f + 4.0 * (alpha * L_r) ** 2 / L_f, 2.0 * alpha / tau)", "max(2.0 * L_f + 4.0 * (alpha * L_r) ** 2 / L_f, alpha / tau)"),
    ("solvers/first_order/bcd|solvers/bcd", "w_next = penalty.project_weights(w - tau * r)", "w_next = penalty.project_weights(w - r)"),
    ("solvers/first_order/bcd|solvers/bcd", "\"F\": loss + alpha * float(w @ r)", "\"F\": loss + float(w @ r)"),
    ("solvers/first_order/bcd|solvers/bcd", "v = alpha * (r - r_before - e / tau)", "v = alpha * (r - r_before + e / tau)"),
    ("solvers/first_order/dc|solvers/dc", "theta - eta * (gradient - v)", "theta - eta * (gradient + v)"),
    ("solvers/first_order/dc|solvers/dc", "-norm.polar(gradient), sign)", "norm.polar(gradient), sign)"),
    ("solvers/first_order/prox|solvers/prox", "momentum = (t_last - 1.0) / t", "momentum = t_last / t"),
    ("solvers/box", "new = min(max(new, lower[j]), upper[j])", "new = min(new, upper[j])"),
    ("solvers/.*kernels", "inverse = inverse_diagonal[i] + k * k / s", "inverse = inverse_diagonal[i]"),
    ("solvers/.*kernels", "cost = t * moved - 0.5 * t * t * inverse", "cost = t * moved"),
    ("solvers/problem", "return float(slope * np.max(norms[regular] / factor[regular], initial=0.0))", "return float(0.3 * slope * np.max(norms[regular] / factor[regular], initial=0.0))"),
    ("solvers/problem", "pull = subgradient_residual(theta, gradient, 0.0, self.bounds)", "pull = gradient"),
    ("solvers/search/kernels", "left += link[slot, column] ** 2 / pivot", "left += 0.0 * pivot"),
    ("solvers/search/kernels", "correlation[j] += old[j] * lost - new[j] * c_new", "correlation[j] += old[j] * lost"),
    ("solvers/search/kernels", "theta[slot] = c_new / left", "theta[slot] = c_new"),
    ("solvers/search/subset", "cost = theta**2 / (2.0 * variance)", "cost = theta**2"),
    # bounds: every sign
    ("solvers/certify/kernels", "return constant - (0.5 * quadratic + taken + top)", "return constant - (-0.5 * quadratic + taken + top)"),
    ("solvers/certify/kernels", "return constant - (0.5 * quadratic + taken + top)", "return constant - (0.5 * quadratic - taken + top)"),
    ("solvers/certify/kernels", "return constant - (0.5 * quadratic + taken + top)", "return constant - (0.5 * quadratic + taken - top)"),
    ("solvers/certify/kernels", "rest = max(np.sqrt(square) - t[g], 0.0)", "rest = max(np.sqrt(square) + t[g], 0.0)"),
    ("solvers/certify/kernels", "gain[g] = free - paid", "gain[g] = free + paid"),
    ("solvers/certify/kernels", "free = 0.5 * square / delta[g]", "free = 0.25 * square / delta[g]"),
    ("solvers/certify/relaxation", "K = K - cross.T @ cho_solve(factor, cross)", "K = K + cross.T @ cho_solve(factor, cross)"),
    ("solvers/certify/relaxation", "c = c - cross.T @ cho_solve(factor, self.c[F])", "c = c + cross.T @ cho_solve(factor, self.c[F])"),
    ("solvers/certify/relaxation", "constant = constant - 0.5 * float(", "constant = constant - 0.25 * float("),
    ("solvers/certify/relaxation", "delta = np.diagonal(K) - np.diagonal(M) - away - slack", "delta = np.diagonal(K) - np.diagonal(M) + away - slack"),
    ("solvers/certify/relaxation", "M.flat[:: size + 1] -= tau\n        away = row_sums", "M.flat[:: size + 1] -= 2 * tau\n        away = row_sums"),
    ("solvers/certify/relaxation", "self.bound + (self.gain[free] - self.following)", "self.bound + (self.gain[free] + self.following)"),
    ("solvers/certify/relaxation", "self.bound + (self.last - self.gain[not_free])", "self.bound + (self.last + self.gain[not_free])"),
    ("solvers/certify/general", "bound = -conjugate - (taken + top)", "bound = conjugate - (taken + top)"),
    ("solvers/certify/general", "bound = -conjugate - (taken + top)", "bound = -conjugate + (taken + top)"),
    ("solvers/certify/general", "bound = -conjugate - (taken + top)", "bound = -conjugate - (taken - top)"),
    ("solvers/certify/general", "g = g - weighted @ (inverse", "g = g + weighted @ (inverse"),
    ("diagnostics/bounds", "base - least[decided != 1].sum()", "base + least[decided != 1].sum()"),
    ("diagnostics/bounds", "- most[decided == 1].sum() - top", "+ most[decided == 1].sum() - top"),
    ("diagnostics/bounds", "- most[decided == 1].sum() - top", "- most[decided == 1].sum() + top"),
    ("diagnostics/bounds", "(np.sqrt(square) - self.threshold[parts], 0.0)", "(np.sqrt(square) + self.threshold[parts], 0.0)"),
    ("diagnostics/bounds", "self.summed(constant - 0.5 * float(u @ Mu)", "self.summed(constant + 0.5 * float(u @ Mu)"),
    ("diagnostics/bounds", "c - Mu, delta, parts", "c + Mu, delta, parts"),
    ("diagnostics/bounds", "base = -float(data.loss.conjugate(", "base = float(data.loss.conjugate("),
    ("diagnostics/bounds", "self.gain[free] - following", "self.gain[free] + following"),
    ("diagnostics/bounds", "last - self.gain[not_free]", "last + self.gain[not_free]"),
    ("diagnostics/bounds", "K = K - self.K[np.ix_(W, F)] @", "K = K + self.K[np.ix_(W, F)] @"),
    ("diagnostics/bounds", "c - self.K[np.ix_(W, F)] @ solved", "c + self.K[np.ix_(W, F)] @ solved"),
    ("diagnostics/bounds", "constant - 0.5 * float(self.c[F] @", "constant + 0.5 * float(self.c[F] @"),
    ("diagnostics/bounds", "np.diagonal(M) - away - slack", "np.diagonal(M) + away - slack"),
    ("solvers/(search/soft|polish)", "entry = level * np.abs(theta[P]) + 0.5 * level**2 * diagonal[at]", "entry = level * np.abs(theta[P])"),
    ("solvers/(search/soft|polish)", "return clipped * size / inverse - clipped**2 / (2.0 * inverse)", "return clipped * size / inverse"),
    ("solvers/(search/groups|groupsearch)", "swap = np.maximum(swap, keep)", "swap = keep"),
    ("solvers/mm/starts", "gamma = gamma * growth if gamma else first / top", "gamma = first / top"),
    ("solvers/(mm/solver|mm.py)", "done = solved and (worst <= inner.goal", "done = True or (worst <= inner.goal"),
    # the ridge term
    ("solvers/problem", "return self.loss_value(eta) + 0.5 * float(self.ridge @ theta**2)", "return self.loss_value(eta) + float(self.ridge @ theta**2)"),
    ("solvers/problem", "hessian.flat[:: len(W) + 1] += self.ridge[W]", "hessian.flat[:: len(W) + 1] += 0.0"),
    ("solvers/problem", "np.hypot(columns, np.sqrt(self.ridge))", "columns"),
    ("solvers/mm/newton", "grown, bent = added(point), step**2 * curved", "grown, bent = added(point), 0.0"),
    ("solvers/gram", "self._rows[np.arange(old, end), new] += self.ridge[new]", "pass"),
    ("diagnostics/swap", "np.einsum(\"ij,ij->j\", left, left) + self.ridge[j[which]]", "np.einsum(\"ij,ij->j\", left, left)"),
    ("diagnostics/candidate", "loss + 0.5 * float(self.ridge @ self.theta**2)", "loss"),
    ("penalties/base", "return self.norm.spread(l2 * np.where(self._excluded, 0.0, self._factor))", "return self.norm.spread(np.where(self._excluded, 0.0, l2))"),
    ("selection/criteria", "np.linalg.pinv(hessian + np.diag(ridge), hermitian=True) * hessian", "np.linalg.pinv(hessian, hermitian=True) * hessian"),
    # diagnostics: certificates
    ("diagnostics/swap", "score = (c**2 + 2 * c * k * v - s * v**2) / (2 * (s + k**2))", "score = (c**2 - 2 * c * k * v - s * v**2) / (2 * (s + k**2))"),
    ("diagnostics/swap", "entry - t * moved + t**2 * raised / 2", "entry - t * moved"),
    ("diagnostics/swap", "theta = self.theta + self.threshold[j] * self.sign[at] * self.inverse[:, at[0]]", "theta = self.theta"),
    ("diagnostics/exact_penalty", "return (1.0 + _MARGIN) * threshold if threshold > 0 else 1.0", "return 0.5 * threshold if threshold > 0 else 1.0"),
    ("diagnostics/local_minimum", "bad = np.flatnonzero(violation > tol)", "bad = np.flatnonzero(violation > 100 * tol)"),
    ("diagnostics/local_minimum", "if slope > tol:", "if False:"),
    ("graphs/diagnostics/certificate|diagnostics/graphical.py", "weighted = point.loss + 2 * float(paid.sum())", "weighted = point.loss + float(paid.sum())"),
    ("graphs/diagnostics/certificate|diagnostics/graphical.py", "slack = np.maximum(paid + moved * theta, 0.0)", "slack = np.maximum(paid - moved * theta, 0.0)"),
    ("graphs/diagnostics/minimum|diagnostics/graphical_minimum", "share = np.where(rows == cols, 0.5, 1.0)", "share = np.where(rows == cols, 1.0, 1.0)"),
    # selection: criteria, rules, grids, bounds
    ("selection/(rules|grid|search)", "np.lexsort((-alphas[columns], hs[rows]))[0]", "np.lexsort((alphas[columns], hs[rows]))[0]"),
    ("selection/folds", "block -= np.outer(shift[rows], shift)", "block -= 0.0 * np.outer(shift[rows], shift)"),
    ("selection/grid", "within = mean >= mean[best] - error", "within = mean >= mean[best]"),
    ("selection/grid", "lucky = difference.mean() <= _standard_error(difference, repeats)", "lucky = difference.mean() <= 0.0"),
    ("selection/(rules|grid|search)", "return largest * np.geomspace(1.0, eps, n_alphas)", "return largest * np.linspace(1.0, eps, n_alphas)"),
    ("selection/path", "target = G @ theta + selection * factor * theta", "target = G @ theta"),
    ("selection/errorbounds", "worst = theta * q / t", "worst = theta * q"),
    ("selection/errorbounds", "return 4 * (1 - tau + step / 2) / (1 + step)", "return 2 * (1 - tau + step / 2) / (1 + step)"),
    ("selection/folds|selection/search", "scores.append(-loss.report_factor * loss.value(eta, data.y, weights))", "scores.append(-loss.value(eta, data.y, weights))"),
    ("graphs/selection|selection/graphcriteria", "D = np.mean(2.0 * xi * (1.0 - xi), axis=-1)", "D = np.mean(xi * (1.0 - xi), axis=-1)"),
    ("selection/stability", "self.scores_ = self.stability_path_.max(axis=0)", "self.scores_ = self.stability_path_.mean(axis=0)"),
)]
# fmt: on


def passes(source: Path, tests: Path, room: str, mutant: Mutant | None = None) -> bool:
    """Whether the tests of a room pass on a copy of the source, with the error of a mutant in it.

    Without a mutant they run on the source itself, so that its copies have what numba compiles.
    """
    if mutant is None:
        return _pytest(source, tests / room)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(source, copy)
        path = mutant.file(copy / "trimreg")
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(mutant.piece, mutant.by), encoding="utf-8")
        if "numba" in text:  # numba does not notice that a function called from another file has changed
            for compiled in copy.rglob("*.nbi"):
                compiled.unlink()
        return _pytest(copy, tests / room)


def _pytest(source: Path, tests: Path) -> bool:
    files = [tests, *(path for name in EVERYWHERE if (path := tests.parent / name).exists())]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *map(str, files)]
    paths = os.pathsep.join([str(source), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, cwd=tests.parent.parent, env=env, capture_output=True, text=True)
    failed_at_import = ended.returncode == 2 and "rror" in ended.stdout
    if ended.returncode not in (0, 1) and not failed_at_import:
        raise RuntimeError(f"pytest ended with {ended.returncode}:\n{ended.stdout[-2000:]}")
    return ended.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rooms", nargs="*", help="penalties, losses, solvers, diagnostics, selection, graphs")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout to test")
    parser.add_argument(
        "--json", type=Path, help="file of which mutants were killed; those already in it are not run again"
    )
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time")
    args = parser.parse_args()
    root = args.root.resolve()
    tests = root / "tests"
    scratch = tempfile.TemporaryDirectory()
    source = Path(scratch.name) / "src"
    shutil.copytree(root / "src", source)
    chosen = [mutant for mutant in MUTANTS if not args.rooms or mutant.room in args.rooms]
    if root != ROOT:  # an older checkout need not have every piece
        chosen = [mutant for mutant in chosen if _stands(mutant, source / "trimreg")]
    room_of = {
        mutant: mutant.file(source / "trimreg").relative_to(source / "trimreg").parts[0] for mutant in chosen
    }
    killed: dict[str, bool] = {}
    if args.json and args.json.exists():
        killed = json.loads(args.json.read_text())
    left = [mutant for mutant in chosen if _key(mutant) not in killed]
    with ThreadPoolExecutor(args.jobs) as pool:
        rooms = dict.fromkeys(room_of[mutant] for mutant in left)
        for room, good in zip(rooms, pool.map(lambda room: passes(source, tests, room), rooms), strict=True):
            if not good:
                raise SystemExit(f"the tests of {room} fail without a mutant: they would kill every one")
        futures = {pool.submit(passes, source, tests, room_of[mutant], mutant): mutant for mutant in left}
        for future in as_completed(futures):
            mutant = futures[future]
            killed[_key(mutant)] = not future.result()
            print("killed  " if killed[_key(mutant)] else "SURVIVES", _key(mutant), flush=True)
            if args.json:
                write_atomically(args.json, json.dumps(killed, indent=1).encode())
    for room in [*dict.fromkeys(mutant.room for mutant in chosen), "all"]:
        of_room = [killed[_key(mutant)] for mutant in chosen if room in ("all", mutant.room)]
        share = of_room.count(True) / len(of_room)
        print(f"{room:12} {of_room.count(True):3} of {len(of_room):3} killed ({share:.0%})")


def _stands(mutant: Mutant, source: Path) -> bool:
    try:
        return bool(mutant.file(source))
    except ValueError:
        return False


def _key(mutant: Mutant) -> str:
    return f"{mutant.where}: {mutant.piece}  ->  {mutant.by}"


if __name__ == "__main__":
    main()
