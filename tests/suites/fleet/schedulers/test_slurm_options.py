"""Options for Slurm as a user writes them, and the nodes of a partition in every state that a cluster has."""

import pytest

from dlbench.suites.errors import UsageError
from dlbench.suites.fleet.schedulers import slurm_programs
from dlbench.suites.fleet.schedulers.slurm_nodes import SlurmNode, chosen, nodes_of
from dlbench.suites.fleet.schedulers.slurm_options import SlurmOptions, partition_asked, read_further


def test_options_are_read_as_sbatch_writes_them() -> None:
    texts = ["constraint=zen4&ib", "--mem_per_cpu=4G", "hold", "comment=a=b c"]
    assert read_further(texts) == {"constraint": "zen4&ib", "mem-per-cpu": "4G", "hold": "", "comment": "a=b c"}
    assert read_further([]) == {}


@pytest.mark.parametrize("text", ["", "=5", "Mem=5", "a b=5", "comment=two\nlines", "-c=5"])
def test_what_is_no_option(text: str) -> None:
    with pytest.raises(UsageError, match="is no option of sbatch"):
        read_further([text])


@pytest.mark.parametrize("text", ["partition=p", "time=5", "--qos=q", "exclusive"])
def test_options_that_dlbench_has_itself(text: str) -> None:
    with pytest.raises(UsageError, match="an option of its own"):
        read_further([text])


@pytest.mark.parametrize("text", ["array=0-3", "nodelist=n1", "requeue", "no-requeue", "output=x", "wrap=true"])
def test_options_that_a_fleet_rests_on(text: str) -> None:
    with pytest.raises(UsageError, match="dlbench sets it itself"):
        read_further([text])


@pytest.mark.parametrize(
    ("complaint", "words"),
    [
        ("sbatch: error: a\nsbatch: error: Batch job submission failed: Invalid qos specification\n",
         "Invalid qos specification"),
        ("slurm_load_partitions: Unable to contact slurm controller (connect failure)",
         "Unable to contact slurm controller (connect failure)"),
        ("slurm_load_jobs error: Invalid job id specified", "Invalid job id specified"),
        ("sbatch: unrecognized option '--x'\nTry \"sbatch --help\" for more information", "unrecognized option '--x'"),
        ("", ""),
    ],
)  # fmt: skip
def test_the_last_words_of_a_complaint(complaint: str, words: str) -> None:
    assert slurm_programs.last_words(complaint) == words


def test_variables_that_sbatch_takes_before_its_script(monkeypatch: pytest.MonkeyPatch) -> None:
    assert partition_asked(SlurmOptions()) == ""
    monkeypatch.setenv("SBATCH_PARTITION", "long")
    assert partition_asked(SlurmOptions()) == partition_asked(SlurmOptions(partition="long")) == "long"
    with pytest.raises(UsageError, match="SBATCH_PARTITION would change"):
        partition_asked(SlurmOptions(partition="short"))
    monkeypatch.setenv("SBATCH_TIMELIMIT", "5")
    assert partition_asked(SlurmOptions()) == "long"
    with pytest.raises(UsageError, match="SBATCH_TIMELIMIT would change"):
        partition_asked(SlurmOptions(minutes=5))
    monkeypatch.setenv("SBATCH_REQUEUE", "1")
    with pytest.raises(UsageError, match="SBATCH_REQUEUE would change"):
        partition_asked(SlurmOptions())


@pytest.mark.parametrize(
    ("state", "usable", "idle"),
    [
        ("idle", True, True),
        ("idle~", True, True),
        ("idle#", True, True),
        ("idle*", False, False),
        ("idle%", False, False),
        ("mixed-", True, False),
        ("allocated", True, False),
        ("allocated*", False, False),
        ("planned", True, False),
        ("completing", True, False),
        ("maint$", False, False),
        ("reserved", False, False),
        ("down*", False, False),
        ("draining", False, False),
        ("drained", False, False),
        ("inval", False, False),
        ("unknown", False, False),
    ],
)
def test_which_nodes_take_jobs(state: str, usable: bool, idle: bool) -> None:
    node = SlurmNode("n1", state)
    assert (node.usable, node.idle) == (usable, idle)


def test_a_node_of_several_partitions_is_there_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ("a|n1|idle|none", "a|n2|down*|gone | for good", "b|n2|down*|gone | for good", "b|n3|idle|none")
    monkeypatch.setattr(slurm_programs, "ask", lambda *words: "\n".join(rows))
    assert list(nodes_of("")) == ["n1", "n2", "n3"]  # no partition is the default one
    assert list(nodes_of("b")) == ["n2", "n3"]
    assert str(nodes_of("b")["n2"]) == "n2 is down* (gone | for good)"
    monkeypatch.setattr(slurm_programs, "ask", lambda *words: "\n".join(rows).replace("a|", "a*|"))
    assert list(nodes_of("")) == list(nodes_of("a")) == ["n1", "n2"]


def test_a_partition_without_nodes_that_take_jobs() -> None:
    with pytest.raises(UsageError, match=r"^Nodes asked for, none can be used: 2 down\*, 1 drained\.$"):
        chosen({name: SlurmNode(name, state) for name, state in _DEAD.items()}, None, ())
    with pytest.raises(UsageError, match=r"^1 node asked for, none can be used: there are none\.$"):
        chosen({}, 1, ())


_DEAD = {"n1": "down*", "n2": "drained", "n3": "down*"}
