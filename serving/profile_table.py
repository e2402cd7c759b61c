"""Writes README's table of profiles from their YAML: `make readme`. A test fails where it is out of date."""

from pathlib import Path

from serving.checkpoint import load_checkpoint
from serving.plan import GROUP_DATA
from serving.profile import Profile, load_profile

README = GROUP_DATA.parent / "README.md"
BEGIN, END = "<!-- made by `make readme` from group_data/profiles/ -->\n", "<!-- until here -->\n"
HEAD = "| profile | for | GPUs | checkpoint | GB | evidence |\n|---|---|---|---|---|---|\n"


def table(group_data: Path = GROUP_DATA) -> str:
    """One row a profile, in the order of an operator's interest: this card's first, the sandbox's last."""
    names = sorted(path.stem for path in (group_data / "profiles").glob("*.yaml"))
    ordered = sorted(names, key=lambda name: name.startswith("sandbox"))
    return HEAD + "".join(_row(name, group_data) for name in ordered)


def _row(name: str, group_data: Path) -> str:
    profile = load_profile(group_data / "profiles", name)
    checkpoint = load_checkpoint(group_data / "checkpoints", profile.checkpoint)
    cells = [f"`{name}`", profile.purpose, _gpus(profile), checkpoint.repository, f"{checkpoint.size_gb:g}"]
    return f"| {' | '.join([*cells, profile.evidence])} |\n"


def _gpus(profile: Profile) -> str:
    return str(profile.gpus) if profile.workers == 1 else f"{profile.workers} x {profile.gpus}"


def with_table(text: str) -> str:
    """The README with its table made anew. Raises ValueError where the markers are gone."""
    before, found, rest = text.partition(BEGIN)
    _, also_found, after = rest.partition(END)
    if not (found and also_found):
        raise ValueError(f"README.md lacks the line {BEGIN.strip()} or {END.strip()}")
    return f"{before}{BEGIN}{table()}{END}{after}"


if __name__ == "__main__":
    README.write_text(with_table(README.read_text(encoding="utf-8")), encoding="utf-8")
