"""The commands whose output `tests/goldens` records; damaged inputs are made from the same ones."""

GATE, FIRST, SECOND = "20261122T140656-32ed51", "20261122T140431-a3f7a8", "20261122T141202-886d39"


def both(name: str, line: str) -> dict[str, str]:
    """Return a report's command for the terminal and as JSON."""
    return {f"{name}-terminal": line, f"{name}-json": f"{line} --json"}


COMMANDS = {
    **{
        f"matrix-cpu-{form}": f"report matrix --store cpu.sqlite --format {form}"
        for form in ("terminal", "markdown", "latex", "csv")
    },
    "matrix-cpu-json": "report matrix --store cpu.sqlite --networks fcn5 --frameworks torch --threads 1 --json",
    "matrix-faults-terminal": "report matrix --store faults.sqlite",
    "matrix-gpu-terminal": "report matrix --store gpu.sqlite",
    "matrix-workers-terminal": "report matrix --store workers.sqlite",
    "threads-cpu-terminal": "report threads --store cpu.sqlite",
    "threads-cpu-json": "report threads --store cpu.sqlite --networks fcn5 --frameworks torch --json",
    **both("scaling-cpu", "report scaling --store cpu.sqlite"),
    **both("figure1-cpu", "report figure1 --store cpu.sqlite --networks fcn5 --frameworks torch"),
    **both("tables-cpu", "report tables --store cpu.sqlite"),
    **both("ceilings-gpu", "report ceilings --store gpu.sqlite"),
    **both("progress-cpu", "report progress --store cpu.sqlite --networks fcn5 --frameworks torch"),
    **both("against-cpu", "report matrix --store cpu.sqlite --against shi2016"),
    **both("fastest-cpu", "report fastest --store cpu.sqlite --networks fcn5"),
    **both("frameworks-cpu", "report frameworks --store cpu.sqlite"),
    **both("machines", "report machines --store cpu.sqlite --store elsewhere.sqlite"),
    **both("tuning", "report tuning --store 2026-11-23-installed-and-tuned.sqlite"),
    **both("fleet", "report fleet --store 2026-11-23-two-nodes-of-a-cluster.sqlite"),
    **both("cells", "report cells --store 2026-11-23-recurrent-cells-and-a-text.sqlite"),
    **both("claims-cpu", "report claims --store cpu.sqlite"),
    **both("rnn", "report rnn --reference brandfonbrener2017"),
    **both("history-nights", "history --store nights.sqlite"),
    **both("compare-gate", f"compare {GATE} --store gates.sqlite"),
    **both("compare-runs", f"compare {FIRST} {SECOND} --store cpu.sqlite"),
    "export-cpu": f"export --store cpu.sqlite --run {FIRST}",
}
