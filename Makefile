# Short names; CMakePresets.json and scripts/ do the work.
PREFIX ?= /usr/local
SOURCES = $(wildcard base/*.[ch] oci/*.[ch] oci/*/*.[ch] image/*.[ch] image/*/*.[ch] \
	runtime/*/*.[ch] cmd/*.[ch] tests/unit/*.[ch] tests/fuzz/*.[ch] tests/bench/*.[ch])

all:
	@scripts/build release

check:
	@scripts/test

bench: all
	@tests/bench/run --petri build/petri

bench-peers:
	@scripts/setup bench

# The parts that live on chance or take a sample, for longer and in full: fuzzing, kills at random moments and
# at every system call, errors of the disk, power loss, many commands at once.
soak:
	@PETRI_SOAK=1 PETRI_FUZZ_SECONDS=300 PETRI_TEST_KILLS=5000 PETRI_TEST_TIMEOUT=14400 PETRI_TEST_ONLY="crash or kill or a06" \
		scripts/test fuzz root user nosub

install: all
	DESTDIR="$(DESTDIR)" cmake --install build --prefix "$(PREFIX)" --strip

deb: all
	cd build && cpack -B ../dist && rm -rf ../dist/_CPack_Packages

format:
	clang-format -i $(SOURCES)

clean:
	rm -rf build build-* dist

.PHONY: all check bench bench-peers soak install deb format clean
