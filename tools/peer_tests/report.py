"""What the results say: per file, per folder, by kind of failure. Rules about failures are applied here, so a new rule needs no new run."""

import collections
import dataclasses
import re
from collections.abc import Iterator, Mapping

from tools.peer_tests import suite
from tools.peer_tests.processes import File

PASS, FAIL, NOT_APPLICABLE = "pass", "fail", "n/a"
BY_ITSELF = "skipped by the test itself"

# What differs between failures of one kind.
_VARIES = [
    (re.compile(r"0x[0-9a-fA-F]+"), "0x_"),
    (re.compile(r"\[PID.*$|\btime:.*$|^\[?(?:ERROR|W\d+|E\d+).*?\] "), ""),
    (re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w])"), "#"),
    (re.compile(r"(?:#, )+#"), "#"),
    (re.compile(r"/\S+/"), ".../"),
]


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    test: str
    outcome: str  # PASS, FAIL or NOT_APPLICABLE
    kind: str = ""  # of a test that isn't applicable
    reason: str = ""  # why not applicable, or the text of the failure
    rule: suite.Rule | None = None


def judge(name: str, file: File, rules: suite.Rules) -> Iterator[Verdict]:
    for test, result in file.tests.items():
        if result.outcome == "pass":
            yield Verdict(test, PASS)
        elif result.outcome == "skip":
            yield Verdict(test, NOT_APPLICABLE, BY_ITSELF, first_line(result.error))
        else:
            rule = rules.before(test if not test.endswith("::*") else name) if result.outcome == "left out" else rules.after(test, result.error)
            if rule is not None:
                yield Verdict(test, NOT_APPLICABLE, rule.kind, rule.reason, rule)
            else:
                yield Verdict(test, FAIL, reason=result.error)


def first_line(error: str) -> str:
    """The line of a failure that says most: hostcann's own text if it is there, else the first one."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    for line in lines:
        if re.search(r"\boperator \w+ is not available|\baclnn\w+: |\bhostcann\b", line):
            return line
    return lines[0] if lines else ""


def kind_of(error: str) -> str:
    line = first_line(error)
    for pattern, replacement in _VARIES:
        line = pattern.sub(replacement, line)
    return line[:160]


def counts(verdicts: list[Verdict]) -> tuple[int, int, int]:
    tally = collections.Counter(verdict.outcome for verdict in verdicts)
    return tally[PASS], tally[FAIL], tally[NOT_APPLICABLE]


def rate(passed: int, failed: int) -> str:
    return f"{100 * passed / (passed + failed):.1f}%" if passed + failed else "-"


def line_of(name: str, verdicts: list[Verdict], width: int = 64) -> str:
    passed, failed, rest = counts(verdicts)
    return f"{name:<{width}} {passed:>6} {failed:>6} {rest:>6}  {rate(passed, failed):>6}"


def table(files: Mapping[str, File], rules: suite.Rules, most_kinds: int = 25) -> str:
    """Per file, per folder and in all; then why tests don't apply, failures by kind, and rules that matched nothing."""
    judged = {name: list(judge(name, file, rules)) for name, file in files.items()}
    every = [verdict for verdicts in judged.values() for verdict in verdicts]
    width = max([len(name) for name in judged] + [40])
    lines = [f"{'file':<{width}} {'pass':>6} {'fail':>6} {'n/a':>6}  {'rate':>6}"]
    lines += [line_of(name, verdicts, width) for name, verdicts in judged.items()]
    folders: dict[str, list[Verdict]] = collections.defaultdict(list)
    for name, verdicts in judged.items():
        folders[name.rpartition("/")[0] + "/"].extend(verdicts)
    lines += ["", "by folder"] + [line_of(folder, verdicts, width) for folder, verdicts in folders.items()]
    lines += [line_of("in all", every, width)]

    reasons = collections.Counter((v.kind, v.reason) for v in every if v.outcome == NOT_APPLICABLE)
    lines += ["", "not applicable"] + [f"{count:>6}  {kind}: {reason}" for (kind, reason), count in reasons.most_common()]

    kinds: dict[str, list[str]] = collections.defaultdict(list)
    for verdict in every:
        if verdict.outcome == FAIL:
            kinds[kind_of(verdict.reason)].append(verdict.test)
    ranked = sorted(kinds.items(), key=lambda item: -len(item[1]))
    lines += ["", "failures by kind"]
    for kind, tests in ranked[:most_kinds]:
        lines += [f"{len(tests):>6}  {kind}", f"        e.g. {tests[0]}"]
    if len(ranked) > most_kinds:
        lines += [f"        and {len(ranked) - most_kinds} more kinds"]

    used = {verdict.rule for verdict in every}
    idle = [rule.reason for rule in rules.rules if rule not in used]
    if idle:
        lines += ["", "rules that matched nothing here"] + [f"        {reason}" for reason in idle]
    return "\n".join(lines)
