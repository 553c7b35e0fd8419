"""Children that are forked when remote sources have been read."""

import gc
import weakref

from tests.forks import forked, forking
from tests.servers import RangeServer
from virtualstack.storage import Storage, obstore


@forking
def test_a_child_drops_no_connection():
    """That would wake threads that it does not have, by a lock that one of them may have had: it waited for ever."""
    with RangeServer({"a": bytes(1000)}) as server:
        Storage.of(None).source(server.url("a")).read(0, 9)
        connections = [weakref.ref(x) for x in obstore._STATE.connections.values()]
        assert all(ref() is not None for ref in connections)

        def child():
            gc.collect()
            assert all(ref() is not None for ref in connections)

        assert forked(child)
