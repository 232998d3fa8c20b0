"""What tests with providers need of a house: a context that leads to one, and all that may have been written of it."""

from typing import Any

from tests.houses import House
from tests.providers import Provider

PROMPT = "the house's own prompt"


def context(house: House, double: Provider, **values: Any) -> None:
    """A context `remote` that has lines read by the provider; patient, so that no busy machine makes a line fail."""
    columns = {"line_concurrency": 6, "line_timeout_s": 60, "temperature": 0.25, "system_prompt": PROMPT} | values
    house.execute(
        f"""INSERT INTO contexts (id, name, segmentation_model, transcription_provider, transcription_model, {", ".join(columns)})
            VALUES (gen_random_uuid(), 'remote', 'kraken-blla', :provider, :model, {", ".join(f":{name}" for name in columns)})""",
        provider=double.kind,
        model=double.name,
        **columns,
    )


def everything_as_text(house: House) -> str:
    """Every row of every table there is."""
    tables = house.rows("SELECT format('%I.%I', table_schema, table_name) AS name FROM information_schema.tables "
                        "WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ('pg_catalog', 'information_schema')")  # fmt: skip
    assert len(tables) > 20
    return "\n".join(row[0] for table in tables for row in house.rows(f"SELECT t::text FROM {table.name} AS t"))
