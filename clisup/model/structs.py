"""Base of the records that travel over the wire, and the refusal of wrong fields from a client or a file. Pure."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import NODEFAULT, Struct, field
from msgspec.structs import asdict

if TYPE_CHECKING:
    from pydantic import BaseModel, GetCoreSchemaHandler, ValidationError
    from pydantic_core import CoreSchema

JsonObject = dict[str, Any]
"""Object of JSON whose members are not fixed: a schema, a tool's input, a journaled event of any type."""


class WireStruct(Struct, frozen=True, omit_defaults=True):
    """Immutable record. A null field is left out of the JSON.

    The constructor checks no types: decoders give checked fields. `msgspec.convert` checks the fields of foreign JSON.
    Models of pydantic can hold such records: the API's results do.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return pydantic's schema of this record: that of a model with the same fields."""
        from pydantic_core import core_schema

        model = _model_of(cls)

        def validate(value: Any, inner: Any) -> Any:
            return value if isinstance(value, cls) else cls(**_fields(inner(value)))

        def serialize(value: Any, inner: Any) -> Any:
            return inner(model.model_construct(**asdict(value)))

        schema = handler.generate_schema(model)
        serialization = core_schema.wrap_serializer_function_ser_schema(serialize, schema=schema)
        return core_schema.no_info_wrap_validator_function(validate, schema, serialization=serialization)


def kept(default: Any) -> Any:
    """Return a field's default that the JSON holds, too."""
    return field(default_factory=lambda: default)


@cache
def _model_of(cls: type[Struct]) -> type[BaseModel]:
    from pydantic import ConfigDict, create_model

    fields: dict[str, Any] = {}
    if tag := cls.__struct_config__.tag:
        fields["type"] = (Literal[tag], tag)
    for item in msgspec.structs.fields(cls):
        made = ... if item.default_factory is NODEFAULT else item.default_factory()
        fields[item.encode_name] = (item.type, made if item.default is NODEFAULT else item.default)
    return create_model(cls.__name__, __config__=ConfigDict(frozen=True), __doc__=cls.__doc__, **fields)


def _fields(model: BaseModel) -> dict[str, Any]:
    return {name: value for name, value in model if name != "type"}


PLACE_CHARS = 128
REASON_CHARS = 200


def wrong_field(error: ValidationError) -> tuple[str, str]:
    """Return the path of the first wrong field, empty for the whole value, and the reason.

    Both are short whatever the value was. pydantic quotes the value that should give a block's type as a whole.
    """
    problem = error.errors(include_input=False, include_url=False)[0]
    reason = problem["msg"]
    where = ".".join(str(part) for part in problem["loc"])[:PLACE_CHARS]
    if len(reason) > REASON_CHARS:  # the expected value stands at the end
        reason = f"{reason[: REASON_CHARS // 2]} ... {reason[-REASON_CHARS // 2 :]}"
    return where, reason
