#!/bin/bash
# A user's view: build as ./quickstart does, go on as README.md says: build all, install, compile
# the example against allrail.pc alone, run it; the same with the static library.
# Limit: 600 s
. tests/legs/common.sh
# Names that two files of a folder have each for itself meet there.
read -r -a as_quickstart < <(sed -n 's/.*meson setup build \(-D[^>]*\) >.*/\1/p' quickstart)
try "quickstart's options are known" test ${#as_quickstart[@]} -gt 0
try "configure as quickstart" configure build-unity -Dtests=false "${as_quickstart[@]}"
try "build as quickstart" ninja -C build-unity --quiet launcher/run/allrail-run \
  perf/allrail-bench perf/allrail-info
try "build all" ninja -C build-unity --quiet

# Every library that meson looks for comes with a package that ./quickstart installs.
quickstart_installs_all() {
  local name file package listed missing=0
  listed=$(tests/lab/package-list build)
  while read -r name; do
    file=$(pkg-config --variable=pcfiledir "$name")/$name.pc
    package=$(dpkg -S "$file" | cut -d: -f1)
    grep -qxF "$package" <<<"$listed" || {
      echo "$name is in $package, which is not of the group build in tests/lab/packages"
      missing=1
    }
  done < <(meson introspect --dependencies build-unity |
    python3 -c 'import json, sys
for one in json.load(sys.stdin):
    if one["name"] not in ("threads", "dl"): print(one["name"])' | sort -u)
  [ "$missing" = 0 ]
}
try "quickstart installs what it needs" quickstart_installs_all
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export DESTDIR=$work/root
try "meson install" meson install -C build-unity
unset DESTDIR

pc=$(find "$work/root" -name allrail.pc)
prefix=$work/root$(sed -n 's/^prefix=//p' "$pc")
export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR=$work/root
PKG_CONFIG_PATH=$(dirname "$pc")
try "it is where the loader and pkg-config look" test -e "$prefix/lib/liballrail.so" -a \
  -e "$prefix/lib/pkgconfig/allrail.pc"
try "schema of tuning files is installed" test -s "$prefix/share/allrail/tuning.schema.json"
# The first C++ block of the README is a whole program.
awk '/^```cpp/ { inside = 1; next } /^```/ && inside { exit } inside' README.md >"$work/example.cpp"
read -r -a flags < <(pkg-config --cflags --libs allrail)
try "README example compiles" g++ -std=c++20 -Wall -Wextra -Werror "$work/example.cpp" \
  -o "$work/example" "${flags[@]}"
LD_LIBRARY_PATH=$(dirname "$(find "$work/root" -name liballrail.so | head -n 1)")
export LD_LIBRARY_PATH ALLRAIL_RAILS=127.0.0.1,127.0.0.2
try "README example runs" timeout 60 "$prefix/bin/allrail-run" -n 4 --nodes 2 "$work/example"

# The static library with shared ones of what allrail.pc names for it: `pkg-config --static` wants
# all that those are made of, too, which few systems have. Only what was installed has another root.
mapfile -t needed < <(pkg-config --print-requires-private allrail)
read -r -a include < <(pkg-config --cflags-only-I allrail)
read -r -a others < <(env -u PKG_CONFIG_SYSROOT_DIR pkg-config --libs "${needed[@]}")
try "README example compiles with the static library" g++ -std=c++20 -Wall -Wextra -Werror \
  "${include[@]}" "$work/example.cpp" "$(find "$work/root" -name liballrail.a)" \
  -o "$work/static-example" "${others[@]}" -pthread
needs_no_allrail() { ! ldd "$1" | grep liballrail; }
try "it needs no shared one" needs_no_allrail "$work/static-example"
try "it runs" timeout 60 "$prefix/bin/allrail-run" -n 4 --nodes 2 "$work/static-example"
