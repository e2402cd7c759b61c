"""Takes a host from bare to a server that is proven to serve. Run: pyinfra inventory.py deploy.py"""

from pyinfra import config

from tasks import activation, checkpoint, credential, engine, machine, notifier, plan

config.REQUIRE_PYINFRA_VERSION = "~=3.10.0"

release = plan.make()  # looks at the host once; refuses what cannot work, before the first change
machine.prepared(release)  # packages, service user, folders, hostkit
engine.installed(release)  # the locked environment, in a folder of its own
checkpoint.present(release)  # fetched, every byte as in the manifest
notifier.set_up(release)  # who is told when a server fails
activation.staged(release)  # unit and environment files, beside those in use
credential.present(release)  # the API key, where there is one
activation.active(release)  # stop, prove the GPUs free, start, prove; or go back
activation.answering(release)  # one real question, in every run
