#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <unordered_map>
#include <vector>

template <int N> struct Table {
    std::map<std::string, std::vector<std::function<int(int)>>> map;
    int run(const std::string &text) {
        static const std::regex word("([a-z]+)-([0-9]{1,4})");
        std::smatch match;
        if (std::regex_search(text, match, word)) map[match[1]].push_back([](int value) { return value * N; });
        int sum = N;
        for (auto &[key, calls] : map)
            for (auto &call : calls) sum += call(static_cast<int>(key.size()));
        return sum;
    }
};
template <int N> int all(const std::string &text) {
    if constexpr (N == 0) return 0;
    else return Table<N>().run(text) + all<N - 1>(text);
}
int main(int argc, char **argv) {
    std::cout << all<24>(argc > 1 ? argv[1] : "some-12") << std::endl;
}
