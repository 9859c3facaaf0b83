"""The commands of docs/guide/commands.md, typed as its reader would, in one folder."""

import re
import shlex
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "commands.md"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


def test_the_page_is_true(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")  # other processes would import everything again
    names, commands = {}, []
    for kind, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "python":
            exec(compile(text, PAGE.name, "exec"), names)
            continue
        line, *printed = text.splitlines()
        program, *arguments = shlex.split(line.removeprefix("$ "))
        answer = call(*arguments)
        assert program == "trimreg"
        bad = any(entry.startswith("error: ") for entry in printed)
        assert answer.exit_code == (2 if bad else 0), answer.output
        assert all(entry in answer.output.splitlines() for entry in printed), answer.output
        commands.append(arguments[0])
    assert set(commands) == {
        "fit", "predict", "verify-certificate", "path", "graph", "reproduce", "report"
    }  # fmt: skip
    made = {"model.json", "model.html", "predictions.csv", "path.png", "path.csv", "graph.png", "report.html"}
    assert made < {path.name for path in tmp_path.iterdir()}
