import h5py
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.amount import examples
from tests.servers import RangeServer
from virtualstack.errors import StorageError
from virtualstack.formats.hdf5 import byte_readers, fetch
from virtualstack.formats.hdf5.fetch import MetadataSource, Scheduler
from virtualstack.formats.hdf5.structures.requests import Blocks, Span, StructureError, read_blocks, read_span
from virtualstack.storage import MemorySource, SourceFile, open_source
from virtualstack.testing.sources import FaultySource, RecordingSource

DATA = np.random.default_rng(0).bytes(6_000_000)
USER_BLOCK = 512


@pytest.fixture(scope="module", params=["memory", "small file", "file", "other", "server", "filesystem"])
def source(request, tmp_path_factory):
    """The same bytes behind each kind of source; the first of them only of a small file."""
    if request.param == "memory":
        yield MemorySource(DATA)
    elif request.param == "other":
        yield RecordingSource(MemorySource(DATA))
    elif request.param in ("file", "small file"):
        path = tmp_path_factory.mktemp("fetch") / "data.h5"
        path.write_bytes(DATA if request.param == "file" else DATA[:400_000])
        yield open_source(path)
    elif request.param == "filesystem":
        filesystem = MemoryFileSystem()
        filesystem.pipe_file("/fetch/data.h5", DATA)
        yield open_source("memory://fetch/data.h5", storage=filesystem)
    else:
        with RangeServer({"data.h5": DATA}) as server:
            yield open_source(server.url("data.h5"))


def ask(*requests):
    """A parser that asks for everything at once."""
    return (yield requests)


def chase(address, length):
    """A parser that follows a linked list: each node of 8 bytes tells where the next one is."""
    seen = []
    for _ in range(length):
        (node,) = yield (Span(address, 8),)
        seen.append(address)
        address = int.from_bytes(node, "little")
    return seen


def expected(source, request):
    """What a request is to be answered with."""
    data = DATA[: source.size]
    if isinstance(request, Blocks):
        parts = [data[address : address + request.size] for address in request.addresses.tolist()]
        return np.frombuffer(b"".join(parts), np.uint8).reshape(len(parts), request.size)
    return data[request.address : request.address + request.size]


def check_answers(source, requests, answers):
    """Compare answers to requests with the bytes of the source."""
    assert len(answers) == len(requests)
    for request, answer in zip(requests, answers, strict=True):
        if isinstance(request, Blocks):
            assert answer.dtype == np.uint8
            assert answer.flags.c_contiguous
            np.testing.assert_array_equal(answer, expected(source, request))
        else:
            assert isinstance(answer, bytes)
            assert answer == expected(source, request)


@st.composite
def requests_within(draw, size):
    """Requests for bytes of a file of that size, some of them clipped at its end."""
    span = st.builds(
        lambda address, length: Span(address, min(length, size - address)),
        st.integers(0, size - 1),
        st.one_of(st.integers(0, 4000), st.integers(0, 400_000)),
    )
    clipped = st.builds(
        lambda back, length: Span(size - back, length, True), st.integers(1, 3000), st.integers(1, 5000)
    )

    @st.composite
    def blocks(draw):
        n_bytes = draw(st.integers(0, 5000))
        near = draw(st.integers(0, size - n_bytes))
        address = st.one_of(st.integers(0, size - n_bytes), st.integers(near, min(near + 20_000, size - n_bytes)))
        return Blocks(np.array(draw(st.lists(address, max_size=30)), np.int64), n_bytes)

    return draw(st.lists(st.one_of(span, clipped, blocks()), max_size=6))


@settings(max_examples=examples(25), deadline=None)
@given(data=st.data())
def test_answers_are_the_bytes_of_the_source(source, data):
    """Whatever is asked for together or one after another, the answers are what the source reads there."""
    metadata = MetadataSource(source)
    for requests in data.draw(st.lists(requests_within(source.size), min_size=1, max_size=3)):
        check_answers(source, requests, metadata.run(ask(*requests)))


@pytest.mark.parametrize("n", [1, 2, 5000, 20_000])
@pytest.mark.parametrize("size", [1, 100, 700])
def test_many_blocks_in_any_order(source, n, size):
    """Thousands of blocks, dense and repeated or scattered, come in the order asked for."""
    rng = np.random.default_rng(n * size)
    dense = rng.permutation(np.arange(n) * 16 % (source.size - size))
    scattered = rng.integers(0, source.size - size, n, endpoint=True)
    for addresses in (np.sort(dense), dense, scattered):
        requests = [Blocks(addresses, size)]
        check_answers(source, requests, MetadataSource(source).run(ask(*requests)))


def test_addresses_are_relative_to_the_user_block(source):
    """An address counts from the end of the user block, once that is known."""
    metadata = MetadataSource(source)
    assert metadata.run(read_span(USER_BLOCK, 8)) == source.read(USER_BLOCK, 8)
    metadata.base = USER_BLOCK
    span, blocks = metadata.run(ask(Span(8, 8), Blocks(np.array([8, 100]), 4)))
    assert span == source.read(USER_BLOCK + 8, 8)
    assert bytes(blocks[1]) == source.read(USER_BLOCK + 100, 4)
    end = source.size - USER_BLOCK
    assert metadata.run(read_span(end - 4, 10, is_clipped=True)) == source.read(source.size - 4, 4)
    with pytest.raises(StructureError, match=f"4 bytes at address {end} are not in the file"):
        metadata.run(read_span(end, 4))


@pytest.mark.parametrize("base", [0, USER_BLOCK])
@pytest.mark.parametrize(
    ("address", "size", "is_clipped"),
    [
        (-1, 8, False),
        (-1, 8, True),
        (0, -1, False),
        (2**64 - 1, 8, False),
        (2**64 - 1, 8, True),
        (8, 2**64 - 1, False),
        (400_000 - USER_BLOCK - 7, 8, False),
        (400_000 - USER_BLOCK, 8, True),
    ],
)
def test_bytes_that_are_none_of_the_file_are_an_error_of_its_structure(base, address, size, is_clipped):
    """An address or size from a damaged file is told to the parser, not taken for a failure of storage."""
    metadata = MetadataSource(MemorySource(DATA[: 400_000 - USER_BLOCK + base]), base=base)
    with pytest.raises(StructureError, match=rf"{size} bytes at address {address} are not in the file"):
        metadata.run(read_span(address, size, is_clipped=is_clipped))


@pytest.mark.parametrize("addresses", [[0, -1], [0, 2**63 - 1], [399_993, 0]])
def test_one_bad_block_refuses_all(addresses):
    """Blocks of which one is none of the file's are refused by its address."""
    bad = max(addresses, key=lambda address: address % 2**64)
    with pytest.raises(StructureError, match=rf"8 bytes at address {bad} are not in the file"):
        MetadataSource(MemorySource(DATA[:400_000])).run(read_blocks(np.array(addresses), 8))


def test_more_metadata_at_once_than_a_sane_file_has_is_refused():
    """Blocks that overlap do not make an answer of many gigabytes."""
    addresses = np.zeros(100_000, np.int64)
    with pytest.raises(StructureError, match="40000000000 bytes of metadata are requested at once"):
        MetadataSource(MemorySource(DATA)).run(read_blocks(addresses, 400_000))


def test_a_parser_may_go_on_after_a_bad_address(source):
    """The error is thrown into the parser, which may catch it and ask for something else."""

    def parser():
        try:
            yield (Span(source.size, 8),)
        except StructureError as error:
            (answer,) = yield (Span(0, 8),)
            return str(error), answer

    assert MetadataSource(source).run(parser()) == (
        f"8 bytes at address {source.size} are not in the file",
        source.read(0, 8),
    )


def test_a_parser_that_fails_leaves_the_others_alone(source):
    """Each result, or the error in its place, is given to who waits for it."""

    def fails():
        yield (Span(0, 8),)
        raise StructureError("no signature")

    metadata = MetadataSource(source)
    results = metadata.run_all([read_span(0, 4), fails(), read_span(source.size, 4), read_span(4, 4)])
    assert [results[0], results[3]] == [source.read(0, 4), source.read(4, 4)]
    assert [str(result) for result in results[1:3]] == [
        "no signature",
        f"4 bytes at address {source.size} are not in the file",
    ]
    with pytest.raises(StructureError, match="no signature"):
        metadata.run(fails())


def test_a_parser_may_ask_for_nothing(source):
    """A parser that yields no requests gets no answers, and one that never yields is run all the same."""

    def silent():
        return 5
        yield

    metadata = MetadataSource(source)
    assert metadata.run(ask()) == []
    assert metadata.run(silent()) == 5


def test_parsers_are_added_while_others_run():
    """What a result leads to is spawned from where the result is received, to any depth."""
    n_levels, n_children, size = 4, 5, 64
    n_nodes = sum(n_children**level for level in range(n_levels))
    tree = np.arange(n_nodes, dtype="<u8").repeat(size // 8).reshape(n_nodes, -1).tobytes()
    seen, scheduler = [], Scheduler(MetadataSource(MemorySource(tree)))

    def visit(result):
        number = int.from_bytes(result[:8], "little")
        seen.append(number)
        for child in range(number * n_children + 1, number * n_children + 1 + n_children):
            if child < n_nodes:
                scheduler.spawn(read_span(child * size, size), visit)

    scheduler.spawn(read_span(0, size), visit)
    scheduler.run()
    assert sorted(seen) == list(range(n_nodes))


def test_a_local_file_that_shrank_is_an_error_of_storage(tmp_path):
    """Bytes that were there when the file was opened and are gone end the crawl, and do not kill the process."""
    path = tmp_path / "data.h5"
    path.write_bytes(DATA)
    metadata = MetadataSource(open_source(path))
    with path.open("r+b") as file:
        file.truncate(100_000)
    for parser in (read_span(2_000_000, 8), read_blocks(np.arange(2) * 2_000_000, 8)):
        with pytest.raises(StorageError, match="became shorter after it was opened"):
            metadata.run(parser)


def test_the_file_for_h5py_is_the_source(source):
    """The file gives the bytes of the source, before and after parsers have run."""
    metadata = MetadataSource(source)
    metadata.run(read_span(100, 1000))
    file = SourceFile(metadata, block_size=0)
    assert file.read() == source.read(0, source.size)
    file.seek(90)
    assert file.read(20) == source.read(90, 20)


class Far(RecordingSource):
    """A source that is taken for a remote one, and counts how often it is asked."""

    def __init__(self, data=DATA):
        super().__init__(MemorySource(data, "https://host/data.h5"))
        self.rounds = []

    def read_ranges(self, ranges):
        self.rounds.append(len(ranges))
        return super().read_ranges(ranges)

    @property
    def n_distinct(self):
        """Number of bytes that were read, each counted once."""
        is_read = np.zeros(self.size, bool)
        for offset, length in self.reads:
            is_read[offset : offset + length] = True
        return int(is_read.sum())


def test_a_small_file_is_fetched_whole_at_once():
    """Of a file of up to 4 MiB the first request has all bytes, and there is no other."""
    source = Far(DATA[: 4 << 20])
    metadata = MetadataSource(source)
    metadata.run_all([read_span(0, 8), read_span(4_000_000, 8), read_blocks(np.arange(100) * 40_000, 100)])
    metadata.read(0, 1000)
    assert source.reads == [(0, 4 << 20)]


def test_parsers_of_a_level_are_answered_by_one_round():
    """A tree of any width takes as many rounds as it has levels, and one for the head of the file."""
    n_children, n_levels = 7, 4
    first = np.cumsum([0, *(n_children**level for level in range(n_levels))])
    addresses = 300_000 + np.random.default_rng(0).permutation(first[-1]) * 10_000
    data = bytearray(addresses.max() + 10_000)
    for node, address in enumerate(addresses.tolist()):
        data[address : address + 8] = node.to_bytes(8, "little")
    source, seen = Far(bytes(data)), []
    scheduler = Scheduler(MetadataSource(source))

    def visit(result):
        number = int.from_bytes(result, "little")
        seen.append(number)
        for child in range(number * n_children + 1, number * n_children + 1 + n_children):
            if child < first[-1]:
                scheduler.spawn(read_span(int(addresses[child]), 8), visit)

    scheduler.spawn(read_span(int(addresses[0]), 8), visit)
    scheduler.run()
    assert sorted(seen) == list(range(first[-1]))
    assert len(source.rounds) == 1 + n_levels
    assert source.rounds[0] == 1


def test_a_chain_takes_a_round_for_each_link_that_is_not_near():
    """What one request brought along answers the next ones."""
    data = bytearray(6_000_000)
    near = [1_000_000, 1_000_800, 1_002_000]
    far = [3_000_000, 5_000_000]
    for address, following in zip([*near, *far], [*near[1:], *far, 0], strict=True):
        data[address : address + 8] = following.to_bytes(8, "little")
    source = Far(bytes(data))
    assert MetadataSource(source).run(chase(near[0], 5)) == [*near, *far]
    assert len(source.rounds) == 1 + 1 + len(far)


@settings(max_examples=examples(25), deadline=None)
@given(data=st.data())
def test_no_byte_is_fetched_twice_nor_many_in_vain(data):
    """Over any sequence of requests each byte comes once, but for short gaps; no more than 4 MiB come unasked."""
    source = Far()
    metadata = MetadataSource(source)
    n_asked = 0
    for requests in data.draw(st.lists(requests_within(source.size), min_size=1, max_size=4)):
        metadata.run(ask(*requests))
        n_asked += sum(max(x.size, 4096) * (len(x.addresses) if isinstance(x, Blocks) else 1) for x in requests)
    assert source.bytes_read - source.n_distinct <= 16 * 1024 * len(source.reads)
    assert source.bytes_read <= 2 * n_asked + (4 << 20) + (256 << 10) + 16 * 1024 * len(source.reads)
    n_before = source.bytes_read
    metadata.run(ask(*requests))
    assert source.bytes_read == n_before


def test_a_bad_address_does_not_hold_up_the_others():
    """An address past the end of a remote file is told to its parser before anything is fetched for the round."""
    source = Far()
    results = MetadataSource(source).run_all(
        [read_span(len(DATA), 8), read_span(3_000_000, 8), read_span(5_000_000, 8)]
    )
    assert str(results[0]) == f"8 bytes at address {len(DATA)} are not in the file"
    assert results[1:] == [DATA[3_000_000:3_000_008], DATA[5_000_000:5_000_008]]
    assert len(source.rounds) == 2


@pytest.mark.parametrize("after", [0, 1, 2])
def test_bytes_that_cannot_be_had_end_the_crawl(after):
    """An error of storage reaches the caller, whichever round it happens in."""
    source = FaultySource(MemorySource(DATA, "https://host/data.h5"), after=after)

    def parser():
        for address in (0, 3_000_000, 5_000_000):
            yield (Span(address, 8),)

    with pytest.raises(StorageError, match="FaultySource"):
        MetadataSource(source).run(parser())


def test_more_metadata_than_memory_should_hold_is_refused(monkeypatch):
    """A damaged remote file does not make us fetch all of it."""
    monkeypatch.setattr(byte_readers, "_MAX_METADATA_BYTES", 1_000_000)
    with pytest.raises(
        StorageError, match=r"'https://host/data\.h5' has .* bytes of metadata or more, and at most 1000000 are"
    ):
        MetadataSource(Far()).run(read_span(0, 1_500_000))


def test_reads_of_the_file_for_h5py_grow():
    """What parsers did not fetch is fetched in blocks of 64 KiB, larger ones where reading goes on in sequence."""
    source = Far()
    metadata = MetadataSource(source)
    metadata.run(read_span(0, 8))
    file = SourceFile(metadata, block_size=0)
    for address in (1_000_000, 1_000_100, 3_000_000):
        file.seek(address)
        assert file.read(100) == DATA[address : address + 100]
    assert source.reads[2:] == [(address // 65536 * 65536, 65536) for address in (1_000_000, 3_000_000)]
    file.seek(0)
    assert b"".join(iter(lambda: file.read(10_000), b"")) == DATA
    assert len(source.reads) < 2 + 12


def test_what_h5py_reads_is_kept_up_to_a_limit(monkeypatch):
    """Values that h5py reads through the file do not fill the memory."""
    monkeypatch.setattr(fetch, "_MAX_UNREQUESTED_BYTES", 100_000)
    source = Far()
    file = SourceFile(MetadataSource(source), block_size=0)
    for address in (1_000_000, 2_000_000, 3_000_000, 3_000_000):
        file.seek(address)
        assert file.read(100) == DATA[address : address + 100]
    assert source.reads[-2:] == [(3_000_000, 100), (3_000_000, 100)]


def test_h5py_opens_a_file_over_fetched_bytes(tmp_path):
    """h5py reads metadata and values through the cache, and an error of storage comes out of it as itself."""
    path = tmp_path / "data.h5"
    values = np.arange(1_000_000, dtype="i8")
    with h5py.File(path, "w") as file:
        file["values"] = values
        file["values"].attrs["units"] = "m"
    data = path.read_bytes()
    metadata = MetadataSource(Far(data))
    with h5py.File(SourceFile(metadata, block_size=0), "r") as file:
        assert file["values"].attrs["units"] == "m"
        np.testing.assert_array_equal(file["values"][:], values)
    faulty = MetadataSource(FaultySource(MemorySource(data, "https://host/data.h5"), touching=(7_000_000, 500_000)))
    with (
        h5py.File(SourceFile(faulty, block_size=0), "r") as file,
        pytest.raises(StorageError, match="were made to fail"),
    ):
        file["values"][900_000]
