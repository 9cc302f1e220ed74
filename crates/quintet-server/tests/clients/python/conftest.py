"""The server that the tests talk to, and its clients. `run` starts the server and sets the port."""

import os

import pytest
import redis

PORT = int(os.environ["QUINTET_PORT"])


@pytest.fixture(params=[2, 3], ids=["resp2", "resp3"])
def protocol(request):
    return request.param


@pytest.fixture
def connect(protocol):
    """Makes clients of one protocol, and closes them."""
    clients = []

    def make(**options):
        client = redis.Redis(
            host="127.0.0.1",
            port=PORT,
            protocol=protocol,
            **{"decode_responses": True, "socket_timeout": 30} | options,
        )
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def client(connect):
    """A client of a server without keys."""
    client = connect()
    client.flushall()
    return client
