"""Which files of a checkout are run, and which tests of them hostcann doesn't claim: rules.toml, read and applied."""

import dataclasses
import fnmatch
import functools
import pathlib
import re
import tomllib

RULES = pathlib.Path(__file__).with_name("rules.toml")


class RulesError(ValueError):
    """A rule that says too little, or something unknown."""


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """Tests that are not applicable: `tests` by their name, before they run; with `error`, only those that failed so.

    tests: globs over "path/of/test_file.py::Class::test_name". A glob without "::" means whole files.
    error: a regular expression, searched in the text of the failure. None: the tests aren't run at all.
    """

    kind: str
    reason: str
    tests: tuple[str, ...] = ("*",)
    error: re.Pattern[str] | None = None

    def names(self, test: str) -> bool:
        path = test.partition("::")[0]
        return any(fnmatch.fnmatchcase(test if "::" in glob else path, glob) for glob in self.tests)


@dataclasses.dataclass(frozen=True, slots=True)
class Rules:
    scopes: tuple[tuple[str, tuple[str, ...]], ...]  # (a folder that such a checkout has, globs of its test files)
    rules: tuple[Rule, ...]

    def before(self, test: str) -> Rule | None:
        """The rule by which a test isn't run."""
        return next((rule for rule in self.rules if rule.error is None and rule.names(test)), None)

    def after(self, test: str, error: str) -> Rule | None:
        """The rule by which a failure isn't one of ours."""
        return next((rule for rule in self.rules if rule.error is not None and rule.names(test) and rule.error.search(error)), None)

    def files(self, checkout: pathlib.Path) -> list[str]:
        """The test files of a checkout, relative to it, in order. Raises RulesError for a folder that is no such checkout."""
        found: set[str] = set()
        known = False
        for folder, globs in self.scopes:
            if (checkout / folder).is_dir():
                known = True
                found.update(str(path.relative_to(checkout)) for glob in globs for path in checkout.glob(glob))
        if not known:
            folders = " or ".join(f"`{folder}/`" for folder, _ in self.scopes)
            raise RulesError(f"{checkout} is not a checkout of Ascend/pytorch or Ascend/op-plugin: it has no folder {folders}")
        return sorted(found)


def load(path: pathlib.Path = RULES) -> Rules:
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    scopes = tuple((scope["has"], tuple(scope["files"])) for scope in data.get("scope", []))
    return Rules(scopes, tuple(_rule(row) for row in data.get("rule", [])))


def _rule(row: dict) -> Rule:
    unknown = row.keys() - {"kind", "reason", "tests", "error"}
    if unknown:
        raise RulesError(f"rule {row.get('reason')!r} has unknown keys {sorted(unknown)}")
    for key in ("kind", "reason"):
        if not row.get(key):
            raise RulesError(f"a rule has no {key}: {row}")
    if not row.get("tests") and not row.get("error"):
        raise RulesError(f"rule {row['reason']!r} would match every test: it needs `tests` or `error`")
    return Rule(row["kind"], row["reason"], tuple(row.get("tests") or ("*",)), _pattern(row.get("error")))


@functools.cache
def _pattern(text: str | None) -> re.Pattern[str] | None:
    return None if text is None else re.compile(text)
