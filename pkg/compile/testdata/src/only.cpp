// Nothing here has a name that another file could see: gcc has to make one up.
namespace {
struct S { S(); ~S(); int v; };
S::S() : v(__LINE__) {}
S::~S() { v = 0; }
S s;
}
namespace détails { int été = 1'000; const char8_t *u = u8"\u00e9"; }
%:define digraph(x) %:x
const char *d = digraph(a<:1:>);
