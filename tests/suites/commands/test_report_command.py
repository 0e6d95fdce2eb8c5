"""What `dlbench report` asks of the catalogue: release dates."""

from datetime import UTC, date, datetime

from dlbench.suites.planning.framework import catalogue, release_dates


def test_every_release_has_a_date_in_the_past_and_stands_after_the_first_one():
    dates = release_dates()
    assert {folder for folder, _ in dates} >= {"pytorch", "tensorflow", "mxnet", "onnxruntime"}
    for framework in catalogue().values():
        for release in framework.project.releases if framework.project else ():
            assert release.date <= datetime.now(UTC).date()
            assert dates[framework.folder, release.version] == release.date
            first = framework.project.first_release or date.min
            assert first <= release.date
