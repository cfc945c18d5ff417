"""The first steps of a core's pipeline, as the cost model sees it: which pipe is busy with which step, and when."""

import dataclasses

import jumar_tiling


@dataclasses.dataclass(frozen=True, slots=True)
class Interval:
    """A pipe at work for one step; seconds from the core's start."""

    pipe: str
    step: int
    begin: float
    end: float


@dataclasses.dataclass(frozen=True, slots=True)
class PipeUse:
    """
    every: it has work in each so many-th step (a tile's result leaves after many steps along k). lead: seconds of its first piece, after which
    the next pipe can begin, as long as it doesn't end before this one's last.
    """

    name: str
    seconds: float
    lead: float
    every: int


def pipes_used(work: jumar_tiling.CoreWork) -> list[PipeUse]:
    """The pipes that have something to do, in the order in which data passes them."""
    used = []
    for name, busy in work.busy.items():
        if busy > 0 and work.steps > 0:
            step = work.step[name] or busy / work.steps
            every = max(1, round(step * work.steps / busy))
            seconds = busy * every / work.steps
            used.append(PipeUse(name, seconds, min(step, seconds), every))
    return used


def first_steps(work: jumar_tiling.CoreWork, count: int) -> list[Interval]:
    """
    The first `count` steps. A pipe begins with a step when the pipe before has brought its first piece, when whoever shares its turn is done, and when the
    pipe behind has emptied one of the two copies of the buffer between them.
    """
    pipes = pipes_used(work)
    if not pipes:
        return []
    busiest = max(range(len(pipes)), key=lambda at: work.busy[pipes[at].name])
    free: dict[int, float] = {}
    ends: dict[tuple[int, int], float] = {}  # of (pipe, step)
    intervals = []
    for step in range(min(count, work.steps)):
        arrived = complete = 0.0  # the first piece of the pipe before, and its last
        for at, pipe in enumerate(pipes):
            # What is brought for several steps comes before the first of them, what is the sum of several leaves after the last.
            phase = 0 if at <= busiest else pipe.every - 1
            if step % pipe.every != phase:
                continue
            turn = work.turn[pipe.name]
            emptied = ends.get((at + 1, step - 2), 0.0)
            begin = max(arrived, complete + pipe.lead - pipe.seconds, free.get(turn, 0.0), emptied)
            arrived, complete = begin + pipe.lead, begin + pipe.seconds
            free[turn] = ends[at, step] = complete
            intervals.append(Interval(pipe.name, step, begin, complete))
    return intervals
