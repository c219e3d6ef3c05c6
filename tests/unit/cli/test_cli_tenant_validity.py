from __future__ import annotations

import pytest

from fairlead.cli.tenant import validity_s
from fairlead.errors import BadConfiguration


@pytest.mark.req("S-11")
@pytest.mark.parametrize(
    ("valid_for", "seconds"), [("24h", 86_400), ("10m", 600), (" 720h ", 2_592_000), ("900s", 900)]
)
def test_a_token_is_asked_for_in_hours_or_minutes(valid_for: str, seconds: int) -> None:
    assert validity_s(valid_for, None) == seconds


@pytest.mark.req("S-11")
@pytest.mark.parametrize("valid_for", ["", "24", "1y", "-1h", "9m", "0s", "999999h"])
def test_what_no_api_server_issues_is_refused(valid_for: str) -> None:
    with pytest.raises(BadConfiguration, match=f"--valid-for: '{valid_for}' is not"):
        validity_s(valid_for, None)


@pytest.mark.req("S-11")
def test_the_earlier_option_works_and_names_the_new_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert validity_s("24h", 365) == 365 * 86_400
    assert "use --valid-for 8760h" in capsys.readouterr().err
