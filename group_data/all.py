"""The page an operator edits: what every host serves and where. group_data/<group>.py overrides it for a group."""

# What to serve: a file of group_data/profiles/, without .yaml.
profile = "tp4-mxfp4"

# Where checkpoints lie on the host: <models>/<repository>/<revision>.
models = "/srv/models"

# Where checkpoints come from, in order: hubs by their URL, folders of the host by their path. None: $HF_ENDPOINT, else
# the public hub. []: from nowhere, you put them there yourself.
hub_mirrors = None

# Folders of the host that may hold files of checkpoints already: linked where they are right, never changed.
adopt: list[str] = []

# A file on this machine, of mode 600, that holds your token for gated repositories; None where none is needed. It is
# shown to the first hub of hub_mirrors alone.
hub_token_file = None

# Connections of a fetch at once: more for a link that is long, fewer to leave some of it to others.
fetch_streams = 16

# The entry port. Loopback only: reach it through `ssh -L`.
listen = "127.0.0.1"
port = 30000

# Which GPUs form a group, by PCI address: [["0000:01:00.0", ...], [...]]. A profile asks for groups by size, the first
# worker gets the first one. None: those of each NUMA node, or the halves of the host where the kernel knows no nodes.
gpu_groups = None

# A file on this machine, of mode 600, that holds the API key; None asks callers for none.
api_key_file = None

# How much is proven before a start is called good: "quick" (right answers under load), "full" (also speed, a prompt
# near the limit, the log, a second start), "auto" (full for what this host has not proven yet, else quick), "none"
# (in an emergency: only that it answers).
gates = "auto"

# Who is told when a server fails: {"webhook": "https://..."} gets a JSON POST, {"command": ["/path", ...]} on the host
# gets the same on standard input; None tells nobody. systemd starts a dead server again by itself, so a message comes
# when it gives up, after three starts within 90 minutes. From systemd 254 on (Ubuntu 24.04) one comes at each death
# with an error, too; its text says which it is. To try it, on the host: sglang-box notify --test
# A webhook's URL is a secret; it may be read from a file here: open("webhook").read().strip()
notify = None

# "never" refuses a run that would stop tokens, before any change.
restart = "allow"
