"""An object store as a thread on loopback: S3's protocol, for one test."""

import contextlib
import logging
import secrets
from collections.abc import Iterator

import pytest

from tests.processes import LOOPBACK
from tests.reference import environment


class ObjectServer:
    """Moto's server: S3's protocol on loopback, objects in this process's memory."""

    BUCKET = "bucket"

    def __init__(self) -> None:
        from moto.server import ThreadedMotoServer

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.server = ThreadedMotoServer(ip_address=LOOPBACK, port=0, verbose=False)

    def start(self) -> None:
        from pyarrow.fs import S3FileSystem

        self.server.start()
        self.address = "{}:{}".format(*self.server.get_host_and_port())
        options = {"endpoint_override": self.address, "scheme": "http", "region": "us-east-1"}
        with environment(self.environment()):
            self.store = S3FileSystem(**options, allow_bucket_creation=True)
        self.store.create_dir(self.BUCKET)

    def uri(self, folder: str) -> str:
        """A folder of the bucket, as a driver and its workers name it."""
        asked = f"endpoint_override={self.address}&scheme=http&region=us-east-1"
        return f"s3://{self.BUCKET}/{folder}?{asked}"

    @staticmethod
    def environment() -> dict[str, str]:
        """What driver and workers need: names, any that the server takes for a user's."""
        return {
            "AWS_ACCESS_KEY_ID": "a-user",
            "AWS_SECRET_ACCESS_KEY": secrets.token_urlsafe(16),
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def stop(self) -> None:
        self.server.stop()


@contextlib.contextmanager
def object_server() -> Iterator[ObjectServer]:
    """An object store that answers; skips where moto is not installed."""
    pytest.importorskip("moto", reason="moto, an object server, is not installed")
    server = ObjectServer()
    server.start()
    try:
        yield server
    finally:
        server.stop()
