"""Where things lie on a host. hostkit/paths.py says the same for the code that runs there (a test compares them)."""

ENGINES = "/opt/sglang/engines"
HOSTKIT = "/opt/sglang/hostkit"
INSTALLER = "/opt/sglang/uv"
WHEELS = "/opt/sglang/wheels"
CACHES = "/var/cache/sglang"
STATE = "/var/lib/sglang"
RELEASES = "/var/lib/sglang/releases"
CONFIG = "/etc/sglang"
CREDENTIALS = "/etc/sglang/credentials"
NOTIFY = "/etc/sglang/notify.json"
HUB_TOKEN = "/etc/sglang/hub-token"  # noqa: S105 (a path)
UNITS = "/etc/systemd/system"
CONSOLE_COMMAND = "/usr/local/bin/sglang-box"

SERVICE_USER = "sglang"
JOURNAL_NAMESPACE = "sglang"
TARGET = "sglang.target"
BOOT_UNIT = "sglang-boot.service"
CHECK_UNIT = "sglang-check.service"
# Units of the playbook that serve nothing.
OTHER_UNITS = (TARGET, BOOT_UNIT, CHECK_UNIT)
NOTIFIER = "sglang-notify@.service"
