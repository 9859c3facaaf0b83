"""The experiments of the paper and of its supplement, of two other papers, and some that go beyond them.

The command line finds this package through the entry points ``trimreg.commands``: ``trimreg reproduce`` runs
experiments, ``trimreg report`` writes them up, and ``trimreg demo`` shows the library on real data
(:mod:`.demo`). :mod:`.spec` defines an experiment, :mod:`.registry` lists all, :mod:`.runner` runs their
cells, :mod:`.store` keeps the rows, and :mod:`.report` writes the page.

The package uses the public names of ``trimreg`` and of its subpackages. It needs only these internals:

- ``trimreg._files`` (atomic writing), ``trimreg.cli.common`` (messages and exit codes),
  ``trimreg.selection.progress`` (progress bars), ``trimreg.plotting.style`` (the look of figures);
- ``trimreg.solvers`` kernels for millions of small problems: ``lapack``, ``mm.kernels``,
  ``first_order.arrays``, ``first_order.batch``, and the constant of Theorem 3 in ``first_order.bcd``;
- ``trimreg.penalties.simplex``, ``trimreg.losses.base``, ``trimreg.diagnostics.conditions`` and
  ``trimreg.graphs.mm.kernels``;
- ``trimreg.nn.penalty.rules``, ``trimreg.nn.layers.bayes``, ``trimreg.nn.layers.gates`` and
  ``trimreg.nn.layers.common``, for layers of many networks at once.
"""

from __future__ import annotations
