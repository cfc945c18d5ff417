"""One line of the doctor's report."""

import dataclasses
import enum


class Status(str, enum.Enum):
    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclasses.dataclass(frozen=True)
class Finding:
    status: Status
    topic: str
    text: str
    mend: str = ""

    def __str__(self) -> str:
        mend = f" -> {self.mend}" if self.mend else ""
        return f"{self.status.value:4}  {self.topic:14}  {self.text}{mend}"


def ok(topic: str, text: str) -> Finding:
    return Finding(Status.OK, topic, text)


def warn(topic: str, text: str, mend: str) -> Finding:
    return Finding(Status.WARN, topic, text, mend)


def fail(topic: str, text: str, mend: str) -> Finding:
    return Finding(Status.FAIL, topic, text, mend)
