"""A step explained from made-up profiles: shares add up, rates are by definition, and doubtful ones
are warned of."""

import json
import math

import pytest
from exported import exporter
from factory_of_records import cell, outcome
from hypothesis import given
from hypothesis import strategies as st
from known_networks import NETWORKS

from dlbench.adapters.libraries.profiles import ELEMENTWISE, KINDS, MATRIX, MEMORY, RECURRENT
from dlbench.adapters.protocol import DeviceCeilings, DeviceEvidence, Operator, Profile
from dlbench.reports.explained import IDLE, explain
from dlbench.reports.results.errors import ReportError

explained_to_terminal, explained_to_json = (
    exporter("explain", "terminal"),
    exporter("explain", "json"),
)
PROFILE = Profile(
    "torch.profiler",
    5,
    1.1,
    [
        Operator("aten::mm", MATRIX, False, 0.6, 8.0),
        Operator("aten::addmm", MATRIX, False, 0.2, 4.0),
        Operator("aten::_fused_sgd_", ELEMENTWISE, False, 0.1, 1.0),
        Operator("aten::t", MEMORY, False, 0.0, 20.0),
    ],
)


def explained(profile=PROFILE, seconds=(1.0, 1.0, 1.0), **of_cell):
    chosen = cell(**of_cell)
    return explain(chosen, outcome(seconds, profile=profile), NETWORKS[chosen.network].family)


def test_rates_are_the_networks_flops_over_the_time_of_the_operators_that_do_them():
    flops = NETWORKS["fcn5"].family.training_flops(64)
    content = explained()
    assert content["flops"] == flops
    assert math.isclose(content["product_rate"], flops / 0.8)
    assert math.isclose(content["step_rate"], flops / 1.0)
    recurrent = explained(
        Profile("p", 1, 1.0, [Operator("lstm", RECURRENT, False, 0.5, 2.0)]), network="lstm32"
    )
    assert math.isclose(
        recurrent["product_rate"], NETWORKS["lstm32"].family.training_flops(64) / 0.5
    )


def test_on_a_gpu_it_says_how_much_of_a_step_starting_the_operators_takes():
    profile = Profile("torch.profiler", 3, 1.0, [Operator("sgemm", MATRIX, True, 0.3, 600.0)])
    ceilings = DeviceCeilings(operator_start_seconds=1e-3)
    result = outcome((1.0, 1.0, 1.0), profile=profile)._replace(
        device=DeviceEvidence("a GPU", launches=600.0, ceilings=ceilings)
    )
    content = explain(cell(device="cuda:0"), result)
    text = " ".join(explained_to_terminal(content).split())
    assert (
        "Launch-bound, since starting 600 operators at 1000 us each takes about 60% of a step."
        in text
    )
    assert json.loads(explained_to_json(content))["starting"] == content["starting"]
    assert explain(cell(), result._replace(profile=PROFILE))["starting"] == ""


operators = st.lists(
    st.builds(
        Operator,
        name=st.text(max_size=60),
        kind=st.sampled_from(KINDS),
        on_device=st.booleans(),
        seconds=st.floats(1e-9, 1e3) | st.just(0.0),
        calls=st.floats(0.1, 1e6),
    ),
    max_size=30,
)


@given(operators, st.floats(1e-9, 1e3), st.sampled_from(["cpu", "cuda:1"]))
def test_shares_add_up_to_one_and_every_operator_is_in_its_kind(made_up, step, device):
    profile = Profile("p", 2, step, made_up)
    on_this_device = [operator for operator in made_up if operator.on_device is (device != "cpu")]
    if not on_this_device:
        with pytest.raises(ReportError, match="no operator"):
            explained(profile, device=device)
        return
    content = explained(profile, device=device)
    assert math.isclose(sum(share.share for share in content["kinds"]), 1.0, rel_tol=1e-9)
    assert all(
        0.0 <= share.share <= 1.0 + 1e-9 for share in (*content["kinds"], *content["operators"])
    )
    assert content["kinds"][-1].kind == IDLE
    assert sum(share.kind != IDLE for share in content["kinds"]) == len(
        {operator.kind for operator in on_this_device}
    )
    assert math.isclose(
        sum(share.share for share in content["operators"]) + content["kinds"][-1].share,
        1.0,
        rel_tol=1e-9,
    )
    assert content["operators"] == sorted(
        content["operators"], key=lambda share: (-share.seconds, share.name)
    )
    assert len(json.loads(explained_to_json(content))["operators"]) == len(on_this_device)
    assert all(len(line) <= 80 for line in explained_to_terminal(content).splitlines())
