"""``trimreg fit --certify`` and ``trimreg verify-certificate``."""

import pytest


@pytest.mark.parametrize(("target", "more"), [("y", ()), ("ill", ("--l2", 0.05))])
def test_a_fit_is_certified_and_the_proof_is_verified(call, table, tmp_path, target, more):
    proof, path = tmp_path / "proof.npz", table(target)
    answer = call(
        "fit", path, "--target", target, "--h", 2, *more, "--certify", 30, "--certificate", proof,
        "--loss", "logistic" if target == "ill" else "quadratic",
    )  # fmt: skip
    assert answer.exit_code == 0, answer.output
    assert "certificate: proved: no fit is better by more than" in answer.stdout
    checked = call("verify-certificate", proof, path, "--target", target)
    assert checked.exit_code == 0, checked.output
    assert checked.stdout.startswith("the bounds hold")
    other = call("verify-certificate", proof, path, "--target", "a")
    assert other.exit_code in (1, 2)


def test_the_page_shows_the_bounds(call, table, tmp_path):
    page = tmp_path / "model.html"
    answer = call("fit", table("y"), "--target", "y", "--h", 2, "--certify", 30, "--report", page)
    assert answer.exit_code == 0, answer.output
    assert "Bounds of the smallest objective" in page.read_text()
    assert "global optimum" in page.read_text()


def test_a_loss_without_a_bound_is_fitted_all_the_same(call, table):
    answer = call("fit", table("ill"), "--target", "ill", "--loss", "logistic", "--h", 2, "--certify", 5)
    assert answer.exit_code == 0, answer.output
    assert "note: --certify: l2 must be > 0" in answer.stderr


def test_bad_input(refused, table, tmp_path):
    fit = ("fit", table("y"), "--target", "y", "--h", 2)
    assert "--certify must be a number of seconds" in refused(*fit, "--certify", -1)
    assert "--certify must be a number of seconds" in refused(*fit, "--certify", "nan")
    assert "--certificate needs --certify" in refused(*fit, "--certificate", tmp_path / "p.npz")
    (tmp_path / "p.npz").write_text("nothing")
    line = refused("verify-certificate", tmp_path / "p.npz", table("y"), "--target", "y")
    assert "not a whole certificate" in line
    line = refused("verify-certificate", tmp_path / "none.npz", table("y"), "--target", "y")
    assert "none.npz" in line
