"""Whatever two hubs do wrong, in whatever order: a fetch ends whole and checked, or is refused and nothing is there."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hostkit import events, stamps
from sandbox.model_hub.running import Hub
from tests.fetching import LIMITS, REPOSITORY, Place, manifest

BIG, SMALL = "model-00001-of-00002.safetensors", "deep/er/config.json"
SIZE = 12 << 20
# Faster still: a fault that does not pass is met many times here.
QUICK = {**LIMITS, "silence_s": 0.3, "slow_s": 0.6, "patience_s": 1.0, "pause_s": 0.02, "longest_pause_s": 0.1}

KINDS = st.one_of(
    st.fixed_dictionaries(
        {"fault": st.sampled_from(["stall", "reset", "truncated"]), "after": st.integers(0, SIZE)},
    ),
    st.fixed_dictionaries({"fault": st.just("wrong-length"), "by": st.integers(-5000, 5000).filter(bool)}),
    st.fixed_dictionaries({"fault": st.just("wrong-bytes"), "at": st.integers(0, SIZE - 20)}),
    st.fixed_dictionaries({"fault": st.sampled_from(["429", "503"]), "retry_after": st.sampled_from([None, 0, 1])}),
    st.fixed_dictionaries({"fault": st.sampled_from(["no-ranges", "expired", "gated"])}),
    st.fixed_dictionaries({"fault": st.just("slow"), "rate": st.integers(1_000, 5_000_000)}),
)
WHERE = st.fixed_dictionaries({"file": st.sampled_from(["*", BIG, SMALL])}, optional={"first": st.integers(1, 4)})
RULES = st.lists(st.builds(lambda kind, where: {**kind, **where}, KINDS, WHERE), max_size=4)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    (folder / REPOSITORY / "deep/er").mkdir(parents=True)
    (folder / REPOSITORY / BIG).write_bytes(os.urandom(SIZE))
    (folder / REPOSITORY / SMALL).write_text('{"model_type": "none"}')
    return folder


@pytest.fixture(scope="module")
def hubs(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hub, Hub]]:
    with (
        Hub(models, tmp_path_factory.mktemp("first")) as first,
        Hub(models, tmp_path_factory.mktemp("second")) as second,
    ):
        yield first, second


def test_a_fetch_ends_whole_or_is_refused(models: Path, hubs: tuple[Hub, Hub]) -> None:
    files, ends = manifest(models / REPOSITORY), set()

    @settings(max_examples=int(os.environ.get("FETCH_EXAMPLES", "20")), deadline=None, database=None)
    @given(RULES, RULES)
    @example([{"fault": "503"}], [{"fault": "wrong-bytes", "at": 0}])
    def check(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> None:
        for hub, rules in zip(hubs, (first, second), strict=True):
            hub.set_faults(*rules)
        with tempfile.TemporaryDirectory() as root:
            place = Place(Path(root))
            sources = [hub.endpoint for hub in hubs]
            result = place.bring(files, *sources, limits=QUICK)
            ends.add(result.code)
            if result.code == events.OK:
                assert place.is_whole(files)
            else:
                assert result.code == events.REFUSED, result.message
                assert "\n" not in result.message
                assert not place.folder.exists()
                assert stamps.is_verified(place.folder) is not None
            for hub in hubs:
                hub.set_faults()
            again = place.bring(files, *sources, limits=QUICK)
            assert again.code == events.OK, again.message
            assert place.is_whole(files)

    check()
    assert ends == {events.OK, events.REFUSED}, "the faults were neither harmless nor fatal throughout"
