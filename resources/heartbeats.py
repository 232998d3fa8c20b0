"""When each sensor last had a good tick, by the database's clock: a sensor that is off or broken says nothing itself."""

from sqlalchemy import Engine, func, select
from sqlalchemy.dialects.postgresql import insert

from scribe_pipeline.database import in_transaction
from scribe_pipeline.database.tables import sensor_heartbeats


def stamp_heartbeat(engine: Engine, name: str) -> None:
    """Write down that the sensor of that name has looked just now and found the database in order."""
    stamp = insert(sensor_heartbeats).values(name=name, ticked_at=func.clock_timestamp())
    fresh = stamp.on_conflict_do_update(index_elements=["name"], set_={"ticked_at": stamp.excluded.ticked_at})
    in_transaction(engine, lambda connection: connection.execute(fresh))


def heartbeat_ages(engine: Engine) -> dict[str, float]:
    """Return for each sensor that ever ticked how many seconds ago it last did."""
    ages = select(sensor_heartbeats.c.name, func.extract("epoch", func.clock_timestamp() - sensor_heartbeats.c.ticked_at))
    rows = in_transaction(engine, lambda connection: connection.execute(ages).all())
    return {name: float(age) for name, age in rows}
