"""An object store as a thread on loopback: S3's protocol by moto's server, objects in this process's memory."""

import contextlib
import logging
import secrets
from collections.abc import Iterator

import pytest

from tests.processes import LOOPBACK
from tests.reference import environment


class ObjectServer:
    """A bucket at an address."""

    BUCKET = "bucket"

    def __init__(self, address: str) -> None:
        from pyarrow.fs import S3FileSystem

        self.address = address
        options = {"endpoint_override": address, "scheme": "http", "region": "us-east-1"}
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


@contextlib.contextmanager
def object_server() -> Iterator[ObjectServer]:
    """An object store that answers; skips where moto is not installed."""
    pytest.importorskip("moto", reason="moto, an object server, is not installed")
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address=LOOPBACK, port=0, verbose=False)
    server.start()
    try:
        yield ObjectServer("{}:{}".format(*server.get_host_and_port()))
    finally:
        server.stop()
