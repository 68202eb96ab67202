"""Writes the Parquet files of the tests. Needs pyarrow; run by hand: python3 tests/golden/parquet/make.py"""
import datetime
import decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = Path(__file__).parent


def write(name: str, table: pa.Table, **options) -> None:
    pq.write_table(table, FOLDER / name, **options)


MESSAGE = pa.struct([
    ("role", pa.string()),
    ("content", pa.string()),
    ("reasoning_content", pa.string()),
    ("tool_calls", pa.list_(pa.struct([("id", pa.string()), ("type", pa.string()),
                                       ("function", pa.struct([("name", pa.string()), ("arguments", pa.string())]))]))),
])


def chats() -> None:
    """Conversations as the datasets library writes them: structs with every field, null where a message has none."""
    rows = [[{"role": "user", "content": f"question {i} \u00e9\n\"x\""},
             {"role": "assistant", "content": f"answer {i}", "reasoning_content": "because" if i % 2 else None}]
            for i in range(300)]
    rows[1] = [{"role": "user", "content": "weather?"},
               {"role": "assistant", "content": None,
                "tool_calls": [{"id": "1", "type": "function",
                                "function": {"name": "get", "arguments": "{\"city\": \"Bern\"}"}}]}]
    table = pa.table({"messages": pa.array(rows, pa.list_(MESSAGE)), "source": pa.array(["made"] * 300)})
    write("chats.parquet", table, row_group_size=100, compression="zstd")


def types() -> None:
    """One column a type: a record of ordinary values, one of unusual values, one of nulls."""
    write("types.parquet", pa.table({
        "flag": pa.array([True, False, None]),
        "int8": pa.array([-1, -128, None], pa.int8()),
        "int64": pa.array([1, -2**63, None], pa.int64()),
        "uint64": pa.array([1, 2**64 - 1, None], pa.uint64()),
        "float32": pa.array([0.1, 1e20, None], pa.float32()),
        "float64": pa.array([1.0, 1e-7, None], pa.float64()),
        "string": pa.array(["a", "\u4f60\"\\\n\x01", None]),
        "large": pa.array(["b", "", None], pa.large_string()),
        "binary": pa.array([b"c", b"", None], pa.binary()),
        "category": pa.array(["d", "e", None]).dictionary_encode(),
        "date": pa.array([datetime.date(2026, 4, 24), datetime.date(1970, 1, 1), None]),
        "decimal": pa.array([decimal.Decimal("1.50"), decimal.Decimal("-0.01"), None]),
        "list": pa.array([[1, 2], [None], None], pa.list_(pa.int64())),
        "fixed": pa.array([[1, 2], [3, 4], None], pa.list_(pa.int64(), 2)),
        "map": pa.array([[("k", 1), ("l", None)], [], None], pa.map_(pa.string(), pa.int64())),
        "struct": pa.array([{"x": 1, "y": None}, {"x": None, "y": []}, None],
                           pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))])),
    }))


def json_text() -> None:
    """Conversations as JSON text, and ids."""
    write("json_text.parquet", pa.table({
        "messages": ['[{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]'],
        "tools": ['[{"type": "function", "function": {"name": "f", "parameters": {}}}]']}))
    write("empty.parquet", pa.table({"text": pa.array([], pa.string())}))


if __name__ == "__main__":
    chats()
    types()
    json_text()
