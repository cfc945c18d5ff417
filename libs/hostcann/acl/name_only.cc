// libge_runner.so, libgraph.so, libacl_tdt_channel.so: the wheel names them as dependencies without importing a symbol from them, so the
// loader only has to find the names.
extern "C" const char jumar_hostcann_name_only[] = "hostcann has no part of this library";
