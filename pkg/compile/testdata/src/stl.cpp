#include <algorithm>
#include <cassert>
#include <iostream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>
#include "once.h"

#define CHECK(cond) do { if (!(cond)) throw std::runtime_error(#cond " at " __FILE__); } while (0)

namespace {
struct Counter {
	static int made;
	Counter() { ++made; }
	~Counter() { --made; }
};
int Counter::made = __COUNTER__;
Counter global;
std::string greeting = R"x(raw // not a comment
/* nor here */ "quoted" \n
#define NOT_A_DIRECTIVE 1
)x";
}

template <typename T, int N = ONCE> struct Grid {
	T cells[N][N];
	T sum() const
	{
		T s{};
		for (auto &row : cells)
			for (auto c : row)
				s += c;
		return s;
	}
};

class Base {
public:
	virtual ~Base() = default;
	virtual int value(int x) { return x; }
};
class Derived : public Base {
public:
	int value(int x) override { CHECK(x > 0); return x * 2; }
};

int run(std::vector<int> v)
{
	std::map<std::string, std::unique_ptr<Base>> things;
	things["a"] = std::make_unique<Derived>();
	std::sort(v.begin(), v.end(), [&](int a, int b) { return things["a"]->value(a) < b; });
	try {
		CHECK(v.size() > 1);
	} catch (const std::exception &e) {
		std::cerr << e.what() << greeting << '\n';
	}
	Grid<long> g{};
	assert(g.sum() == 0);
	return v.empty() ? Counter::made : v[0];
}
