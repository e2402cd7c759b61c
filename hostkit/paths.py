"""Where things lie on a host. serving/paths.py says the same for the controller (a test compares them)."""

from pathlib import Path

ENGINES = Path("/opt/sglang/engines")
HOSTKIT = Path("/opt/sglang/hostkit")
INSTALLER = Path("/opt/sglang/uv")
WHEELS = Path("/opt/sglang/wheels")
CACHES = Path("/var/cache/sglang")
STATE = Path("/var/lib/sglang")
RELEASES = STATE / "releases"
RECORDS = STATE / "records"
CAPTURES = STATE / "captures"
CHECKPOINT_STAMPS = STATE / "checkpoints"
EVICTED = STATE / "evicted"
ACTIVE = STATE / "active"
LAST_GOOD = STATE / "last-good"
RUN = Path("/run/sglang")
LOCK = RUN / "lock"
CONFIG = Path("/etc/sglang")
CREDENTIALS = CONFIG / "credentials"
HUB_TOKEN = CONFIG / "hub-token"
UNITS = Path("/etc/systemd/system")

SERVICE_USER = "sglang"
JOURNAL_NAMESPACE = "sglang"
TARGET = "sglang.target"
BOOT_UNIT = "sglang-boot.service"
CHECK_UNIT = "sglang-check.service"
NOTIFIER = "sglang-notify@.service"
