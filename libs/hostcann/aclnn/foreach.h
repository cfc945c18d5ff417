// JUMAR_MAP(macro, a, b, c) -> macro(a), macro(b), macro(c); up to 250 arguments; nothing for none.
#pragma once

#define JUMAR_PARENS ()
#define JUMAR_EXPAND(...) JUMAR_EXPAND3(JUMAR_EXPAND3(JUMAR_EXPAND3(JUMAR_EXPAND3(__VA_ARGS__))))
#define JUMAR_EXPAND3(...) JUMAR_EXPAND2(JUMAR_EXPAND2(JUMAR_EXPAND2(JUMAR_EXPAND2(__VA_ARGS__))))
#define JUMAR_EXPAND2(...) JUMAR_EXPAND1(JUMAR_EXPAND1(JUMAR_EXPAND1(JUMAR_EXPAND1(__VA_ARGS__))))
#define JUMAR_EXPAND1(...) __VA_ARGS__

#define JUMAR_MAP(macro, ...) __VA_OPT__(JUMAR_EXPAND(JUMAR_MAP_ONE(macro, __VA_ARGS__)))
#define JUMAR_MAP_ONE(macro, first, ...) macro(first) __VA_OPT__(, JUMAR_MAP_AGAIN JUMAR_PARENS(macro, __VA_ARGS__))
#define JUMAR_MAP_AGAIN() JUMAR_MAP_ONE
