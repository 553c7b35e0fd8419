"""Sources that vanish, change or stall, and clients that hang up: other cubes go on, and nothing is leaked."""

import asyncio
import concurrent.futures
import gc
import os
import socket
import threading
import time
import urllib.error
import urllib.request
import zlib
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.serve.running import serving
from tests.serve.unlike import cube, joined, write_files
from tests.servers import RangeServer
from virtualstack.serve.reads import ClientGoneError, Memory, QueueFullError, Reads, UnwantedError, read_if_wanted

N = 64


@pytest.fixture
def rain(tmp_path):
    """A file with 64 chunks of 8 kB, on disk."""
    values = np.arange(N * 1000.0).reshape(N, 1000)
    dataset = xr.Dataset({"rain": (("time", "x"), values)})
    dataset.to_netcdf(tmp_path / "rain.nc", encoding={"rain": {"chunksizes": (1, 1000)}})
    return tmp_path / "rain.nc", values


def get(url, timeout=30):
    """Return the status and body of a request."""
    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@pytest.fixture
def two(rain, tmp_path):
    """A server of a cube on a web server that may fail, and of another one; options of the server by call."""
    path, values = rain
    with RangeServer({"rain.nc": path.read_bytes()}) as source:
        options = {source.url(""): {"max_retries": 0, "timeout": "3s"}}
        vds = vs.open_virtual_dataset(source.url("rain.nc"), storage=options)
        with serving({"bad": vds, "good": path}, timeout=2, cache=0) as url:
            yield url, source, values


FAULTS = {
    "vanished": {"mode": "status", "status": 404},
    "failing": {"mode": "status", "status": 500},
    "forbidden": {"mode": "status", "status": 403},
    "stalled": {"mode": "hang"},
    "cut": {"mode": "cut_body"},
    "short": {"mode": "short_body"},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_other_cubes_go_on(two, fault):
    """Twenty requests at once fail with an error that names variable and URL; meanwhile another cube is read."""
    url, source, values = two
    assert get(f"{url}/bad/rain/c/0/0")[1] == values[0].tobytes()
    for name, value in FAULTS[fault].items():
        setattr(source, name, value)
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        bad = [pool.submit(get, f"{url}/bad/rain/c/{i}/0") for i in range(1, 21)]
        begin = time.monotonic()
        good = [pool.submit(get, f"{url}/good/rain/c/{i}/0") for i in range(20)]
        for i, found in enumerate(good):
            assert found.result() == (200, values[i].tobytes())
        assert time.monotonic() - begin < 10
        for found in bad:
            status, body = found.result()
            assert status == (504 if fault == "stalled" else 502), body
            assert b"rain" in body
    source.mode = "normal"
    assert get(f"{url}/good/rain/c/9/0")[1] == values[9].tobytes()


def test_a_source_that_changes(rain, tmp_path):
    """The server never mixes versions: the error says that the source has changed."""
    path, values = rain
    with serving({"cube": path}, cache=0, refresh=1000) as url:
        assert get(f"{url}/cube/rain/c/0/0")[1] == values[0].tobytes()
        xr.Dataset({"rain": (("time", "x"), -values)}).to_netcdf(path, encoding={"rain": {"chunksizes": (1, 1000)}})
        os.utime(path, (1, 1))
        status, body = get(f"{url}/cube/rain/c/1/0")
        assert (status, b"SourceChangedError" in body) == (502, True)
        path.unlink()
        assert get(f"{url}/cube/rain/c/2/0")[0] == 502


def _count_open_files():
    return len([*Path("/proc/self/fd").iterdir()])


def test_clients_that_hang_up(rain):
    """A thousand clients that leave in the middle of an answer: no memory, thread or connection stays behind."""
    path, _ = rain
    big = np.arange(1 << 20, dtype="f8")
    with serving({"cube": path, "big": xr.Dataset({"a": ("x", big)})}, timeout=5, cache=0) as url:
        host, port = url.removeprefix("http://").split(":")
        get(f"{url}/big/a/c/0")
        n_threads, n_files = threading.active_count(), _count_open_files()
        for i in range(1000):
            with socket.create_connection((host, int(port))) as client:
                key = "/big/a/c/0" if i % 2 else f"/cube/rain/c/{i % N}/0"
                client.sendall(f"GET {key} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                if i % 3 == 0:
                    client.recv(100)
        end = time.monotonic() + 30
        while b"virtualstack_memory_bytes 0.0" not in get(f"{url}/metrics")[1]:
            assert time.monotonic() < end
            time.sleep(0.1)
        assert get(f"{url}/big/a/c/0") == (200, big.tobytes())
        assert threading.active_count() <= n_threads + 32 + 2
        gc.collect()
        assert _count_open_files() < n_files + 100  # tests before this one may have left some


@pytest.mark.parametrize("is_made", [False, True], ids=["stored", "made of other chunks"])
def test_nothing_is_read_for_clients_that_have_gone(tmp_path, is_made):
    """Clients of a slow source hang up before their turn: the next client does not wait for their chunks."""
    paths = write_files(tmp_path)
    with RangeServer(tmp_path) as source:
        urls = [source.url(path.rpartition("/")[2]) for path in paths]
        vds = cube(urls) if is_made else vs.open_virtual_dataset(urls[2])
        with serving({"cube": vds}, threads=2, chunks={"time": 3} if is_made else None) as url:
            host, port = url.removeprefix("http://").split(":")
            get(f"{url}/cube/t/zarr.json")
            source.latency = 0.5
            source.reset()
            for i in range(30):
                with socket.create_connection((host, int(port))) as client:
                    client.sendall(f"GET /zarr2/cube/t/{i}.0.0 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            status, body = get(f"{url}/zarr2/cube/t/30.0.0")
            wanted = joined(paths)["t"][90:93] if is_made else joined(paths[2:3])["t"][30]
            found = np.frombuffer(body if is_made else zlib.decompress(body), "f8" if is_made else "f4")
            assert status == 200
            np.testing.assert_array_equal(found, wanted.values.ravel())
            assert source.n_requests < 15
            end = time.monotonic() + 10
            while b'status="499"} 30.0' not in (answer := get(f"{url}/metrics")[1]):
                assert time.monotonic() < end, answer
                time.sleep(0.1)
            assert b"virtualstack_memory_bytes 0.0" in answer


def test_a_client_that_takes_nothing(tmp_path):
    """It holds memory for no longer than the timeout, also if it asks twice before it reads."""
    xr.Dataset({"a": ("x", np.random.default_rng(0).random(1 << 20))}).virtual.to_vstack(tmp_path / "a.vstack")
    with serving({"a": tmp_path / "a.vstack"}, timeout=1, cache=0) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.sendall(f"GET /a/a/c/0 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode() * 8)
            time.sleep(0.3)
            assert b"virtualstack_memory_bytes 0.0" not in get(f"{url}/metrics")[1]
            end = time.monotonic() + 15
            while b"virtualstack_memory_bytes 0.0" not in get(f"{url}/metrics")[1]:
                assert time.monotonic() < end
                time.sleep(0.1)


def test_a_chunk_is_read_once_for_all(rain):
    """Forty clients ask at once; the source sees one request."""
    path, values = rain
    with RangeServer({"rain.nc": path.read_bytes()}) as source:
        vds = vs.open_virtual_dataset(source.url("rain.nc"))
        with serving({"cube": vds}, cache=0) as url, concurrent.futures.ThreadPoolExecutor(40) as pool:
            get(f"{url}/cube/rain/zarr.json")
            source.latency = 1.0
            before = source.n_requests
            found = {*pool.map(get, [f"{url}/cube/rain/c/5/0"] * 40)}
            assert found == {(200, values[5].tobytes())}
            assert source.n_requests - before == 1


def test_a_chunk_that_two_answers_show_is_read_once(tmp_path):
    """Files whose chunks have other lengths than those that are served: each stored chunk is one request."""
    paths = write_files(tmp_path)
    wanted = joined(paths)["t"]
    with RangeServer(tmp_path) as source:
        vds = cube([source.url(path.rpartition("/")[2]) for path in paths])
        with serving({"cube": vds}, chunks={"time": 3}) as url, concurrent.futures.ThreadPoolExecutor(8) as pool:
            get(f"{url}/cube/t/zarr.json")
            source.reset()
            found = [*pool.map(get, [f"{url}/cube/t/c/{i}/0/0" for i in range(40)] * 2)]
            values = np.concatenate([np.frombuffer(body).reshape(3, 5, 6) for _, body in found[:40]])
            np.testing.assert_array_equal(values, wanted)
            n_stored = 31 + 4 + 31 + 6
            assert source.n_requests <= n_stored
            ranges = [x for _, _, x, _ in source.log]
            assert len(ranges) == len({*zip((x for _, x, _, _ in source.log), ranges, strict=True)})


def test_large_cells_are_decoded_once(tmp_path):
    """A chunk of a file of which many are served is read once, if it fits into half of the cache."""
    values = np.arange(9 << 20, dtype="f8").reshape(9, -1)
    encoding = {"a": {"chunksizes": values.shape, "zlib": True, "complevel": 1}}
    xr.Dataset({"a": (("t", "x"), values)}).to_netcdf(tmp_path / "a.nc", encoding=encoding)
    with RangeServer(tmp_path) as source:
        vds = vs.open_virtual_dataset(source.url("a.nc"))
        for cache, n_wanted in (("160 MiB", 1), ("100 MiB", 9)):
            with serving({"cube": vds}, chunks={"t": 1}, cache=cache) as url:
                get(f"{url}/cube/a/zarr.json")
                source.reset()
                for i in range(9):
                    assert get(f"{url}/cube/a/c/{i}/0") == (200, values[i].tobytes())
                assert source.n_requests == n_wanted


def test_chunks_that_are_larger_than_the_limit(tmp_path):
    """They are sent in parts; the memory that they take is bounded."""
    values = np.arange(6 << 20, dtype="f8")
    xr.Dataset({"a": ("x", values)}).to_netcdf(
        tmp_path / "big.nc", format="NETCDF4", encoding={"a": {"contiguous": True}}
    )
    with serving({"cube": tmp_path / "big.nc"}, memory="8 MiB", cache=0) as url:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for status, body in pool.map(get, [f"{url}/cube/a/c/0"] * 4):
                assert (status, body == values.tobytes()) == (200, True)
        assert b"virtualstack_memory_bytes 0.0" in get(f"{url}/metrics")[1]


def run(coroutine):
    """Run a coroutine."""
    return asyncio.run(asyncio.wait_for(coroutine, 20))


def in_thread(pool, read):
    """A function that reads in a thread."""
    loop = asyncio.get_running_loop()
    return lambda is_wanted: loop.run_in_executor(pool, read_if_wanted, read, is_wanted)


def test_memory_is_given_in_turn():
    """Who asks for more than is free waits, and nobody overtakes; who gives up frees the place."""

    async def check():
        memory, order = Memory(10), []

        async def use(name, n):
            taken = await memory.take(n)
            order.append(name)
            await asyncio.sleep(0.01)
            memory.give(taken)

        first = await memory.take(6)
        tasks = [asyncio.create_task(use(name, n)) for name, n in (("large", 50), ("gone", 9), ("small", 1))]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.sleep(0)
        assert order == []
        memory.give(first)
        await asyncio.gather(tasks[0], tasks[2])
        assert (order, memory.used) == (["large", "small"], 0)

    run(check())


@pytest.mark.parametrize("when", ["before", "after"])
def test_who_waits_in_vain_holds_no_memory(when):
    """A client that is gone before its chunk was read, or just as it was."""

    async def check():
        memory = Memory(100)
        reads, free = Reads(memory, 0), threading.Event()
        with concurrent.futures.ThreadPoolExecutor() as pool:

            def read():
                free.wait()
                return b"x" * 10

            async def ask():
                return await reads.get("key", in_thread(pool, read), nbytes=10, timeout=10)

            asking = [asyncio.create_task(ask()) for _ in range(3)]
            await asyncio.sleep(0.05)
            assert memory.used == 10
            if when == "before":
                asking[0].cancel()
            free.set()
            if when == "after":
                while memory.used and not asking[0].done() and reads._readings:
                    await asyncio.sleep(0)
                asking[0].cancel()
            leases = [
                x for x in await asyncio.gather(*asking, return_exceptions=True) if not isinstance(x, BaseException)
            ]
            for lease in leases:
                lease.release()
            assert (memory.used, reads.n_reads) == (0, 1)

    run(check())


def test_too_many_chunks_that_wait():
    """Further ones are refused, and the queue empties again."""

    async def check():
        reads, free = Reads(Memory(100), 0, max_waiting=2), threading.Event()
        with concurrent.futures.ThreadPoolExecutor() as pool:

            async def ask(key):
                try:
                    read = in_thread(pool, lambda: free.wait() and b"")
                    return await reads.get(key, read, nbytes=1, timeout=0.05)
                except (TimeoutError, QueueFullError) as error:
                    return type(error).__name__

            found = await asyncio.gather(*map(ask, range(4)))
            assert sorted(found) == ["QueueFullError"] * 2 + ["TimeoutError"] * 2
            free.set()
            while reads._readings:
                await asyncio.sleep(0.01)
            (await reads.get(5, in_thread(pool, lambda: b"y"), nbytes=1, timeout=1)).release()
            assert reads.memory.used == 0

    run(check())


def test_a_client_that_has_gone_is_not_waited_for():
    """Its chunk is not read when its turn comes, and holds no memory; a client that comes then gets it."""

    async def check():
        reads, n_calls = Reads(Memory(100), 0), 0

        async def read(is_wanted):
            nonlocal n_calls
            n_calls += 1
            await asyncio.sleep(0.05)
            return read_if_wanted(lambda: b"x" * 10, is_wanted)

        async def go():
            await asyncio.sleep(0.01)

        with pytest.raises(ClientGoneError):
            await reads.get("key", read, nbytes=10, timeout=5, gone=go)
        assert (reads.memory.used, n_calls) == (10, 1)
        while reads.memory.used:
            await asyncio.sleep(0.01)
        assert reads.n_reads == 0
        lease = await reads.get("key", read, nbytes=10, timeout=5, gone=asyncio.Event().wait)
        assert lease.data == b"x" * 10
        lease.release()
        assert (reads.memory.used, reads.n_reads, n_calls) == (0, 1, 2)

    run(check())


def test_a_client_that_comes_just_when_a_chunk_was_given_up():
    """It is read for this client."""

    async def check():
        reads, n_calls = Reads(Memory(100), 0), 0

        async def read(_):
            nonlocal n_calls
            n_calls += 1
            if n_calls == 1:
                raise UnwantedError
            return b"x"

        assert (await reads.get("key", read, nbytes=1, timeout=5)).data == b"x"

    run(check())


def test_parts_of_a_chunk_wait_for_nobody():
    """A chunk that has taken its memory reads its parts, although others wait for memory."""

    async def check():
        reads = Reads(Memory(10), 0)

        async def read_part(_):
            return b"x" * 5

        async def read_whole(_):
            await asyncio.sleep(0.02)  # meanwhile the other chunk begins to wait
            part = await reads.get("part", read_part, nbytes=0, timeout=1)
            part.release()
            return b"y" * 10

        async def use(key):
            lease = await reads.get(key, read_whole, nbytes=10, timeout=1)
            lease.release()

        await asyncio.gather(use("a"), use("b"))
        assert reads.memory.used == 0

    run(check())


def test_what_is_sent_counts_when_the_cache_drops_it():
    """A chunk from the cache that is still being sent takes memory from then on, until all have it."""

    async def check():
        reads = Reads(Memory(100), 100)

        async def ask(key):
            async def read(_):
                return b"x" * 25

            return await reads.get(key, read, nbytes=25, timeout=1)

        (await ask(0)).release()
        slow = [await ask(0), await ask(0)]
        assert (reads.memory.used, reads.cached) == (0, 25)
        for key in range(1, 6):
            (await ask(key)).release()
        assert (reads.memory.used, reads.cached) == (25, 100)
        for lease, left in zip(slow, (25, 0), strict=True):
            assert lease.data == b"x" * 25
            lease.release()
            assert reads.memory.used == left

    run(check())


def test_errors_are_not_kept():
    """A chunk that failed is read again by the next client."""

    async def check():
        reads, answers = Reads(Memory(100), 100), iter([OSError("x"), b"good"])

        def read():
            answer = next(answers)
            if isinstance(answer, Exception):
                raise answer
            return answer

        with concurrent.futures.ThreadPoolExecutor() as pool:
            options = {"nbytes": 9, "timeout": 5}
            with pytest.raises(OSError, match="x"):
                await reads.get("key", in_thread(pool, read), **options)
            for _ in range(2):
                lease = await reads.get("key", in_thread(pool, read), **options)
                assert lease.data == b"good"
                lease.release()
        assert (reads.memory.used, reads.n_reads, reads.n_hits, reads.cached) == (0, 2, 1, 4)

    run(check())
