"""The time that a command may spend on launches."""

from dlbench.suites.run.budget import Budget


class Clock:
    """A clock that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_time_runs_once_the_first_launch_is_made() -> None:
    clock = Clock()
    budget = Budget(60.0, clock)
    clock.now = 150.0
    assert budget.left() == 60.0
    budget.begin()
    clock.now = 190.0
    budget.begin()  # profiles go on with the budget of the launches before them
    assert budget.left() == 20.0
    assert budget.has(20.0)
    assert not budget.has(21.0)


def test_without_a_number_there_is_no_end() -> None:
    budget = Budget()
    budget.begin()
    assert budget.left() is None
    assert budget.has(1e9)
