"""The commands whose output is kept: by name, command lines carried out one after the other in one folder."""

import shlex

from kept_runs import CPU_RUNS, GATES_RUNS

Words = tuple[str, ...]

FORMATS = ("terminal", "markdown", "latex", "csv", "json")
COMMANDS: dict[str, tuple[Words, ...]] = {}
ON_GPUS: set[str] = set()
"""Commands that see two pretended GPUs."""

EVERY_STORE = ("cpu", "gpu", "workers", "gates", "faults", "nights", "gated-nights", "elsewhere", "many-cpus")
SUBCOMMANDS = (
    *("", "list", "plan", "run", "probe", "compare", "gate", "export", "import", "doctor", "history", "explain"),
    *("env", "env list", "env build", "env remove", "store", "store upgrade", "store copy"),
    "store deliver",
    *("report", "report matrix", "report threads", "report scaling", "report progress", "report figure1"),
    *("report page", "report site"),
    *("report tables", "report ceilings", "report runs", "report claims", "report cells", "report rnn"),
)


def add(name: str, *lines: str, gpus: bool = False) -> None:
    """Keep these command lines under this name."""
    assert name not in COMMANDS, name
    COMMANDS[name] = tuple(tuple(shlex.split(line)) for line in lines)
    if gpus:
        ON_GPUS.add(name)


def add_formats(name: str, line: str, formats: tuple[str, ...] = FORMATS) -> None:
    """Keep a command in each format."""
    for form in formats:
        add(f"{name}-{form}", f"{line} --format {form}")


def add_reports() -> None:
    """Add every report, of the stores in which it has something to say."""
    for store in ("cpu", "gpu", "workers", "faults"):
        add_formats(f"matrix-{store}", f"report matrix --store {store}.sqlite")
    add("matrix-many-cpus", "report matrix --store many-cpus.sqlite")
    two = "--store cpu.sqlite --store elsewhere.sqlite"
    for report in ("matrix", "threads", "progress", "tables"):
        formats = {"matrix": ("terminal", "markdown", "latex"), "threads": ("terminal",)}.get(report, FORMATS[:2])
        add_formats(f"{report}-three-machines", f"report {report} {two}", formats)
    for store, quantities in (("cpu", "items gflops ceiling"), ("gpu", "items gflops ceiling joules busy")):
        for quantity in quantities.split():
            shown = f"report matrix --store {store}.sqlite --quantity {quantity}"
            add_formats(f"matrix-{store}-{quantity}", shown, ("terminal", "markdown", "latex"))
    add_formats("matrix-against", "report matrix --store cpu.sqlite --against shi2016")
    add("matrix-against-all-modes", "report matrix --store cpu.sqlite --against shi2016 --all-modes")
    add("matrix-against-three-machines", f"report matrix {two} --against shi2016")
    add_formats("matrix-shi2016", "report matrix --reference shi2016", ("terminal", "markdown", "latex", "json"))
    add("matrix-shi2016-items", "report matrix --reference shi2016 --quantity items")
    add_formats("threads-shi2016", "report threads --reference shi2016", ("terminal", "json"))
    for number, run in enumerate(CPU_RUNS):
        add(f"matrix-cpu-run-{number}", f"report matrix --store cpu.sqlite --run {run}")
    for number in (3, 4):
        for report in ("matrix", "threads"):
            shown = f"report {report} --store cpu.sqlite --run {CPU_RUNS[number]}"
            add(f"{report}-cpu-run-{number}-json", f"{shown} --json")
        add(f"threads-cpu-run-{number}", shown)
    add("threads-cpu-run-6", f"report threads --store cpu.sqlite --run {CPU_RUNS[6]}")
    add("tables-cpu-run", f"report tables --store cpu.sqlite --run {CPU_RUNS[6]}")
    for store in ("cpu", "workers"):
        add_formats(f"threads-{store}", f"report threads --store {store}.sqlite")
    add_formats("threads-many-cpus", "report threads --store many-cpus.sqlite", ("terminal", "json"))
    add("matrix-cpu-all-runs", "report matrix --store cpu.sqlite --all-runs")
    add("matrix-cpu-suite", "report matrix --store cpu.sqlite --suite small")
    add("matrix-cpu-json-option", f"report matrix --store cpu.sqlite --run {CPU_RUNS[2]} --json")
    add(
        "matrix-elsewhere",
        "report matrix --store elsewhere.sqlite",
        "report matrix --store elsewhere.sqlite --machine none",
    )
    add("matrix-gates", "report matrix --store gates.sqlite")
    add("matrix-nights", "report matrix --store nights.sqlite")
    for store in ("cpu", "workers"):
        add_formats(f"scaling-{store}", f"report scaling --store {store}.sqlite")
    for store in ("cpu", "gpu"):
        add_formats(f"figure1-{store}", f"report figure1 --store {store}.sqlite")
        add(f"figure1-{store}-items", f"report figure1 --store {store}.sqlite --quantity items")
        add_formats(f"tables-{store}", f"report tables --store {store}.sqlite")
        add_formats(f"ceilings-{store}", f"report ceilings --store {store}.sqlite")
    add("ceilings-all-runs", "report ceilings --store gpu.sqlite --all-runs")
    add_formats("progress-cpu", "report progress --store cpu.sqlite")
    add("progress-all-modes", "report progress --store cpu.sqlite --all-modes --all-runs")
    for store in EVERY_STORE:
        add(f"runs-{store}", f"report runs --store {store}.sqlite")
    add("runs-json", "report runs --store cpu.sqlite --store gates.sqlite --json")
    for report in ("scaling", "figure1", "progress"):
        store = "workers" if report == "scaling" else "cpu"
        add(f"{report}-plot", f"report {report} --store {store}.sqlite --plot drawn.svg")


def add_comparing_reports() -> None:
    """Add the reports of rows and of machines beside one another."""
    for report in ("fastest", "frameworks"):
        add_formats(f"{report}-cpu", f"report {report} --store cpu.sqlite")
    add_formats("machines-three-machines", "report machines --store cpu.sqlite --store elsewhere.sqlite")
    add("machines-cpu", "report machines --store cpu.sqlite")
    add("fastest-shi2016", "report fastest --reference shi2016")
    add("frameworks-shi2016", "report frameworks --reference shi2016")


def add_claims() -> None:
    """Add what papers claim, and their tables."""
    add_formats("claims-cpu", "report claims --store cpu.sqlite")
    add("claims-gpu", "report claims --store gpu.sqlite --paper shi2016")
    add("claims-many-cpus", "report claims --store many-cpus.sqlite --paper shi2016")
    add("claims-wuensche2018", "report claims --reference wuensche2018 --paper shi2016")
    add("claims-own", "report claims --store cpu.sqlite --claim claim.toml --fail-on differs")
    of_claims = ("--paper shi2061", "--fail-on fails", "--claim none.toml", "--claim small.toml", "--reference shi")
    add("claims-bad", *(f"report claims --store cpu.sqlite {words}" for words in of_claims))
    for table in ("wuensche2018", "brandfonbrener2017"):
        add(f"matrix-{table}", f"report matrix --reference {table}")
    add_formats("rnn-brandfonbrener2017", "report rnn --reference brandfonbrener2017")
    add(
        "rnn-quantities",
        *(f"report rnn --reference brandfonbrener2017 --quantity {each}" for each in ("step", "paper")),
    )
    add("rnn-nothing", "report rnn --store cpu.sqlite", "report rnn --store cpu.sqlite --against brandfonbrener2017")
    add("rnn-bad", "report rnn --store cpu.sqlite --against shi2016", "report rnn --quantity seconds")


def add_comparisons() -> None:
    """Add histories, and comparisons of stored runs."""
    for store in ("nights", "gated-nights"):
        add_formats(f"history-{store}", f"history --store {store}.sqlite")
        add(f"history-{store}-all", f"history --store {store}.sqlite --all")
    add("history-magnitude", "history --store nights.sqlite --magnitude 30%")
    add("history-narrowed", "history --store nights.sqlite --network fcn5 --framework null --threads 1,2")
    add("history-since", "history --store nights.sqlite --since 2026-10-04")
    add("history-plot", "history --store nights.sqlite --plot drawn.png")
    add("history-too-few", "history --store gates.sqlite --network lstm32")
    narrower = (
        "--framework null:null --threads 2-4",
        "--suite nightly --network '*5'",
        "--machine none",
        "--threads 64",
    )
    add("history-narrower", *(f"history --store nights.sqlite {words}" for words in narrower))
    wrong = (
        *("--network fnc5", "--framework torch:compile", "--framework ,", "--threads many", "--suite daily"),
        *("--since soon", "--since 2027-01-01", "--since 2026-10-16", "--magnitude 0%", "--magnitude much"),
        *("--format tape", "--plot drawn.jpg", "--plot none/drawn.png"),
    )
    add("history-bad", *(f"history --store nights.sqlite {words}" for words in wrong))
    every = (*FORMATS, "junit")
    for number, run in enumerate(GATES_RUNS):
        add_formats(f"compare-gates-{number}", f"compare {run} --store gates.sqlite", every)
    add("compare-rule", f"compare {GATES_RUNS[0]} --store gates.sqlite --threshold 500% --tolerance 600%")
    add_formats("compare-two-runs", f"compare {CPU_RUNS[0]} {CPU_RUNS[1]} --store cpu.sqlite", every)
    add_formats("compare-two-stores", "compare cpu.sqlite elsewhere.sqlite", every)
    add("compare-machines", f"compare {CPU_RUNS[0]} elsewhere.sqlite --store cpu.sqlite")
    add("compare-nights", "compare previous latest --store nights.sqlite")
    add("compare-changed-nights", "compare 20261002T02 20261010T02 --store nights.sqlite")
    add(
        "compare-write",
        "compare previous latest --store nights.sqlite --write r.md --write r.json --write r.csv --write r.xml",
    )
    add(
        "compare-bad",
        "compare",
        "compare latest --store cpu.sqlite",
        "compare latest latest --store cpu.sqlite",
        "compare 2026 latest --store cpu.sqlite",
        "compare nosuch latest --store cpu.sqlite",
        "compare previous latest --store nights.sqlite --format tape",
        "compare previous latest --store nights.sqlite --steps 3",
        "compare previous latest --store nights.sqlite --write r.doc",
        "compare --now previous latest",
        "compare --now",
        "compare --now --same --pairs x",
        "compare --now --same --interval 0%",
    )


def add_exchange() -> None:
    """Add exports and imports."""
    add("export-cpu", f"export --store cpu.sqlite --run {CPU_RUNS[2]}")
    add("export-newest-gate", "export --store gates.sqlite --suite nightly")
    add("export-faults", "export --store faults.sqlite")
    add("export-bad", "export --format csv", "export --store cpu.sqlite --run nosuch", "export --store none.sqlite")
    add(
        "import-own",
        "import exported.json --store new.sqlite",
        "report runs --store new.sqlite",
        "report matrix --store new.sqlite",
        "report threads --store new.sqlite",
        "compare new.sqlite cpu.sqlite",
        "export --store new.sqlite",
        "import exported.json --store new.sqlite",
    )
    add(
        "import-foreign",
        "import --one-run foreign-a1.json foreign-a2.json foreign-a3.json --store new.sqlite",
        "import --one-run foreign-b1.json foreign-b2.json foreign-b3.json --store new.sqlite",
        "report runs --store new.sqlite",
        "report matrix --store new.sqlite",
        "compare previous latest --store new.sqlite",
        "history --store new.sqlite",
    )
    files = ("none.json", "small.toml", "not-a-number.json", "foreign-a1.json foreign-a1.json", "no-benchmark.json")
    add("import-bad", "import", *(f"import {each} --store new.sqlite" for each in files))


def add_live() -> None:
    """Add what is measured while it is told, in cells that give no number: nothing of it differs from time to time."""
    words = "--store new.sqlite --seed 7 --no-build"
    add("live-run", f"run unsupported.toml {words} --launches 2", f"run unsupported.toml {words} --json --threads 1,2")
    add("live-resume", f"run unsupported.toml {words}", "run unsupported.toml --resume --store new.sqlite")
    add(
        "live-gate",
        f"gate unsupported.toml {words} --same",
        "report matrix --store new.sqlite",
        "compare latest --store new.sqlite",
    )
    add(
        "live-broken",
        f"gate nightly.toml {words} --candidate-env DLBENCH_EXTRA_PRODUCTS=nonsense --threads 1 --networks fcn5",
    )
    add("live-explain", "explain torch/fcn5 --threads 1 --no-build", "explain torch7/fcn5 --threads 1 --no-build")


def add_help() -> None:
    """Add help and lists."""
    for words in SUBCOMMANDS:
        add(f"help{'-' if words else ''}{words.replace(' ', '-')}", f"{words} --help")
    add("version", "--version")
    add("nothing", "", "report", "env")
    add("list", "list")
    add("list-json", "list --json")
    add("list-env", "env list", "env list --json")


def add_plans() -> None:
    """Add plans, on a machine without GPUs and on one with two."""
    pinned = "--seed 7 --devices cpu"
    for suite in ("quick", "table4", "batch", "rnn", "small.toml"):
        add(f"plan-{suite.partition('.')[0]}", f"plan {suite} --threads 1,2,4 {pinned}")
    add("plan-threads", f"plan threads --threads 1,2 --affinity oversubscribed {pinned}")
    add("plan-scaling", f"plan scaling --threads 1 --world-sizes 1,2 {pinned}")
    add("plan-figure1-cpu", f"plan figure1 --threads 2 {pinned}")
    rows = "--frameworks torch:*,jax,null --networks fcn5"
    add("plan-modes", f"plan quick {rows} --threads 1,2..8 --launches 5-9 {pinned}")
    add("plan-json", f"plan quick --threads 1,2 --interval 2% --steps 7 --cell-budget 2m {pinned} --json")
    two = "--devices cuda:all --device-threads 1 --seed 7"
    add("plan-figure1", f"plan figure1 {two}", gpus=True)
    axes = "--precisions float32,tf32,bfloat16 --placements resident,pinned --world-sizes 1"
    add("plan-gpu", f"plan table4 --networks fcn5,resnet50 {axes} {two}", gpus=True)
    add("plan-gpu-json", f"plan quick --frameworks torch {axes} {two} --networks fcn5 --json", gpus=True)


def add_bad_input() -> None:
    """Add what is said of bad input, many bad command lines under one name."""
    two_sides = (
        *("--threshold 200%", "--write report.exe", "--write none/report.md", "--format tape"),
        *("--baseline null=/none/python", "--baseline torch=/none/python"),
    )
    of_gate = ("small.toml", *(f"unsupported.toml --same {words}" for words in two_sides))
    for command in ("plan", "run", "gate"):
        of_quick = (
            *("--networks fnc5", "--frameworks trch", "--threads 0", "--threads many", "--devices cuda:0"),
            *("--batch-sizes -1", "--precisions f8", "--python torch"),
        )
        wrong = ("nosuch", *(f"quick {words}" for words in of_quick), "none.toml")
        more = of_gate if command == "gate" else ()
        add(f"{command}-bad", *(f"{command} {words}" for words in (*wrong, *more)))
    of_quick = (
        *("--launches 5-2", "--interval 0%", "--cell-budget soon", "--world-sizes 0", "--affinity loose", "--seed x"),
        *("--nosuch", "--placements far", "--threads-limit x", "--frameworks torch:x"),
    )
    add("plan-bad-values", "plan", "plan figure1", *(f"plan quick {words}" for words in of_quick))
    add("run-bad-resume", "run quick --resume --store none.sqlite", "run quick --resume --threads 1 --store cpu.sqlite")
    add("explain-bad", "explain torch", "explain torch/fnc5", "explain null/fcn5 --threads 1,2", "explain nosuch/fcn5")
    add("env-bad", "env build nosuch", "env remove nosuch", "env remove null", "env build torch7")
    of_list = ("--frameworks torch", "--python torch=/usr/bin/python3", "--capabilities --frameworks x")
    add("list-bad", *(f"list {words}" for words in of_list))
    of_matrix = (
        *("", "--store none.sqlite", "--store small.toml", "--store cpu.sqlite --format word"),
        *("--store cpu.sqlite --run nosuch", "--store cpu.sqlite --suite nosuch --machine nosuch"),
        *("--store cpu.sqlite --quantity watts", "--store cpu.sqlite --all-modes", "--reference shi2017"),
        *("--store cpu.sqlite --against shi2016 --quantity items", "--against shi2016 --reference shi2016"),
        "--store cpu.sqlite --against shi2061",
    )
    of_others = (
        *("report nosuch", "report figure1 --store cpu.sqlite --quantity gflops"),
        *("report progress --store cpu.sqlite --plot drawn.gif", "report runs --store none.sqlite"),
        *("report progress --store cpu.sqlite --format jsn", "history --store none.sqlite"),
    )
    add("report-bad", *(f"report matrix {words}" for words in of_matrix), *of_others)


add_reports()
add_comparing_reports()
add_claims()
add_comparisons()
add_exchange()
add_live()
add_help()
add_plans()
add_bad_input()
