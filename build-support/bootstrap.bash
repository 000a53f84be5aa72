# Provides what ./pants needs and PyPI has: Pants itself and the pex command line, both hash-locked.
#
# Sourced by ./pants and by .pants.bootstrap (which the official `pants` launcher sources). Works with
# bash 3.2. Each provision is a folder in the cache that appears by one rename, so that an interrupted
# or a concurrent run never sees half of it; its name holds the hash of the lock it was made from.

# Raise it when a provision is made differently from the same lock. The script's own bytes are no part
# of a folder's name: a running Pants daemon goes on using the folder that it was started from.
bootstrap_recipe=2

bootstrap_say() { printf 'pants: %s\n' "$*" >&2; }

bootstrap_sha256() {
  if command -v sha256sum >/dev/null 2>&1; then sha256sum; else shasum -a 256; fi
}

# The folder that holds all provisions.
bootstrap_cache() { printf '%s\n' "${XDG_CACHE_HOME:-$HOME/.cache}/model-export"; }

# bootstrap_is_python VERSION EXECUTABLE: does it run, is it that version, can it make a venv?
# A pyenv shim exists for every version, and fails where that version isn't selected.
bootstrap_is_python() {
  [[ -x $2 && ! -d $2 ]] || return 1
  "$2" -I -c "import sys, ensurepip, venv; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" \
    >/dev/null 2>&1 </dev/null
}

# bootstrap_find_python VERSION: prints an interpreter found on PATH or among pyenv's versions.
bootstrap_find_python() {
  local name candidate
  while IFS= read -r candidate; do
    if bootstrap_is_python "$1" "$candidate"; then printf '%s\n' "$candidate"; return 0; fi
  done < <(for name in "python$1" python3 python; do type -ap "$name"; done)
  for candidate in "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1"[.-]*"/bin/python$1"; do
    if bootstrap_is_python "$1" "$candidate"; then printf '%s\n' "$candidate"; return 0; fi
  done
  return 1
}

# bootstrap_uv_python VERSION: prints an interpreter that uv has, or installs now.
bootstrap_uv_python() {
  local candidate
  command -v uv >/dev/null 2>&1 || return 1
  if ! candidate="$(uv python find --no-project "$1" 2>/dev/null)"; then
    bootstrap_say "installing Python $1 with uv"
    uv python install --quiet "$1" >&2 || return 1
    candidate="$(uv python find --no-project "$1" 2>/dev/null)" || return 1
  fi
  bootstrap_is_python "$1" "$candidate" && printf '%s\n' "$candidate"
}

# Prints a Python 3.9, which is the newest that Pants 2.17.1 runs under.
bootstrap_python39() {
  if [[ -n ${PANTS_PYTHON:-} ]]; then
    if bootstrap_is_python 3.9 "$(type -P "$PANTS_PYTHON" || true)"; then type -P "$PANTS_PYTHON"; return 0; fi
    bootstrap_say "PANTS_PYTHON=$PANTS_PYTHON is no working Python 3.9 with venv: point it at one, or unset it"
    return 1
  fi
  bootstrap_find_python 3.9 || bootstrap_uv_python 3.9 || {
    bootstrap_say "no Python 3.9 with venv on PATH or in pyenv; get one with \`uv python install 3.9\` or \`pyenv install 3.9\`, or set PANTS_PYTHON=/path/to/python3.9"
    return 1
  }
}

# bootstrap_pip PYTHON ARGUMENT...: pip with the user's indexes and certificates, but without those of
# their settings that would change what a hash-locked install means.
bootstrap_pip() {
  local python=$1
  shift
  env -u PYTHONPATH -u PYTHONHOME -u PIP_TARGET -u PIP_PREFIX -u PIP_NO_BINARY \
    PIP_CONSTRAINT=/dev/null PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0 PYTHONNOUSERSITE=1 \
    "$python" -m pip -qq --disable-pip-version-check --no-input "$@" >&2 || {
    bootstrap_say "pip failed (its message is above); the first run needs a package index: PIP_INDEX_URL and pip.conf apply"
    return 1
  }
}

bootstrap_venv() {
  env -u PYTHONPATH -u PYTHONHOME "$1" -m venv "$2" >&2 || {
    bootstrap_say "$1 -m venv failed (its message is above)"
    return 1
  }
}

# Notes which interpreters Pants won't find by itself; exports run under Python 3.11.
bootstrap_search_path() {
  local python39=$1 python311 extra=""
  bootstrap_find_python 3.9 >/dev/null || extra="'$(dirname "$python39")'"
  if ! bootstrap_find_python 3.11 >/dev/null; then
    if python311="$(bootstrap_uv_python 3.11)"; then
      extra="${extra:+$extra,}'$(dirname "$python311")'"
    else
      bootstrap_say "no Python 3.11 on PATH or in pyenv: Pants starts, but exports and tests need one (\`uv python install 3.11\` or \`pyenv install 3.11\`)"
    fi
  fi
  printf '%s' "$extra"
}

# bootstrap_build_pants FOLDER LOCK: a venv with Pants.
bootstrap_build_pants() {
  local python
  python="$(bootstrap_python39)" || return 1
  bootstrap_say "found Python 3.9: $python"
  bootstrap_say "installing Pants from 3rdparty/pants/lock.txt"
  bootstrap_venv "$python" "$1/venv" || return 1
  bootstrap_pip "$1/venv/bin/python" install --no-deps --require-hashes -r "$2" || return 1
  bootstrap_search_path "$python" > "$1/search_path" || return 1
}

# bootstrap_build_pex_cli FOLDER LOCK: the file `pex`, and `identity` with its version, sha256 and size.
bootstrap_build_pex_cli() {
  local python version line
  python="$(bootstrap_python39)" || return 1
  while IFS= read -r line; do
    case $line in pex==*) version=${line#pex==}; version=${version%% *} ;; esac
  done < "$2"
  bootstrap_say "building the pex $version command line from 3rdparty/pex-cli/lock.txt"
  bootstrap_venv "$python" "$1/venv" || return 1
  bootstrap_pip "$1/venv/bin/python" download --no-deps --require-hashes --only-binary :all: \
    --dest "$1/wheels" -r "$2" || return 1
  bootstrap_pack_pex "$1" "$python" "$version" || {
    bootstrap_say "pex failed (its message is above)"
    return 1
  }
  rm -rf "$1/venv" "$1/wheels"
}

# bootstrap_pack_pex FOLDER PYTHON VERSION: the file FOLDER/pex from the wheel in FOLDER/wheels.
#
# Its hash enters every cache key of Pants, so its bytes depend on the wheel alone: pex dates entries
# 1980, sorts them and fixes their modes; they stay uncompressed because zlib's output differs between
# builds of Python; PEX_* variables and rc files are kept out. A PEX file forgets the PEX_ROOT it is
# started with (strip_pex_env), and one that keeps it also obeys the PEX_PYTHON that Pants 2.17.1 sets,
# and finds no other interpreter. So the place Pants mounts its cache at in a sandbox is written in.
bootstrap_pack_pex() {
  (
    cd "$1" || exit 1
    umask 022
    for name in $(compgen -e | grep '^PEX_'); do unset "$name"; done
    unset PYTHONHOME XDG_CACHE_HOME
    "$2" -m zipfile -e wheels/*.whl unpacked || exit 1
    PYTHONPATH=unpacked PYTHONUTF8=1 PYTHONDONTWRITEBYTECODE=1 PYTHONNOUSERSITE=1 \
      PEX_IGNORE_RCFILES=1 PIP_CONFIG_FILE=/dev/null PEX_ROOT="$PWD/pex_root" \
      "$2" -m pex "pex==$3" --no-index --find-links wheels --no-transitive --no-compress \
      --no-compile --runtime-pex-root .cache/pex_root --inject-env PEX_ROOT=.cache/pex_root \
      --python-shebang '/usr/bin/env python3' --console-script pex -o pex >/dev/null || exit 1
    rm -rf unpacked pex_root
    read -r sha256 _ < <(bootstrap_sha256 < pex) || exit 1
    printf 'v%s %s %d\n' "$3" "$sha256" "$(wc -c < pex)" > identity
  )
}

# bootstrap_provide KIND FOLDER LOCK PROBE: makes FOLDER with bootstrap_build_KIND unless its PROBE,
# a file in it, is there already.
bootstrap_provide() {
  local build="bootstrap_build_$1" folder=$2 lock=$3 probe=$4
  [[ -x $folder/$probe ]] && return 0
  (
    mkdir -p "$(dirname "$folder")" || exit 1
    if command -v flock >/dev/null 2>&1; then
      # Children inherit the descriptor: what a killed launcher left running still holds the lock.
      exec 9> "$(dirname "$folder")/lock"
      flock --nonblock 9 || { bootstrap_say "waiting for another ./pants to finish setting up"; flock 9; }
      [[ -x $folder/$probe ]] && exit 0
      rm -rf "$folder".making.*
    fi
    making="$(mktemp -d "$folder.making.XXXXXX")" || exit 1
    trap 'rm -rf "$making"' EXIT
    trap 'exit 130' INT TERM HUP
    "$build" "$making" "$lock" || exit 1
    # What stands in the way lost its probe, e.g. the Python that a venv points to was removed.
    if [[ -e $folder && ! -x $folder/$probe ]]; then rm -rf "$folder"; fi
    # Without flock another may have been faster: then this one moves into that folder, and goes.
    if [[ ! -e $folder ]]; then mv "$making" "$folder"; rm -rf "$folder/${making##*/}"; fi
    [[ -x $folder/$probe ]] || { bootstrap_say "$folder is incomplete: delete it and run again"; exit 1; }
  )
}

# bootstrap_folder KIND LOCK CACHE: where a provision lies; another lock, recipe, PANTS_PYTHON or kind
# of machine means another folder.
bootstrap_folder() {
  local key
  read -r key _ < <({ cat "$2"; printf '%s\n' "$bootstrap_recipe" "$HOSTTYPE-$OSTYPE" "${PANTS_PYTHON:-}"; } | bootstrap_sha256)
  printf '%s/%s-%s\n' "$3" "$1" "${key:0:16}"
}

# bootstrap_file_url FOLDER NAME: a file:// URL that Pants 2.17.1 can open. It percent-encodes the path and
# then opens it like that, so a path with a space or an accent gets a plain link; the hash is checked.
bootstrap_file_url() {
  local folder=$1 link LC_ALL=C
  case $folder in
    *[!A-Za-z0-9/._+-]*)
      link="/tmp/model-export-$UID-${folder##*/}"
      ln -sfn "$folder" "$link" || { bootstrap_say "can't link $link: set XDG_CACHE_HOME to a plain path"; return 1; }
      folder=$link
      ;;
  esac
  printf 'file://%s/%s\n' "$folder" "$2"
}

# bootstrap_pex_cli ROOT: exports the PANTS_PEX_CLI_* variables.
bootstrap_pex_cli() {
  local lock="$1/3rdparty/pex-cli/lock.txt" folder version sha256 size platform known="" url
  folder="$(bootstrap_folder pex_cli "$lock" "$(bootstrap_cache)")"
  bootstrap_provide pex_cli "$folder" "$lock" pex || return 1
  read -r version sha256 size < "$folder/identity"
  for platform in linux_x86_64 linux_arm64 macos_x86_64 macos_arm64; do
    known="${known:+$known,}'$version|$platform|$sha256|$size'"
  done
  url="$(bootstrap_file_url "$folder" pex)" || return 1
  export PANTS_PEX_CLI_VERSION="$version"
  export PANTS_PEX_CLI_URL_TEMPLATE="$url"
  export PANTS_PEX_CLI_KNOWN_VERSIONS="[$known]"
}

# bootstrap_pants ROOT: sets PANTS_VENV.
bootstrap_pants() {
  local lock="$1/3rdparty/pants/lock.txt" folder extra=""
  folder="$(bootstrap_folder pants "$lock" "$(bootstrap_cache)")"
  bootstrap_provide pants "$folder" "$lock" venv/bin/python || return 1
  PANTS_VENV="$folder/venv"
  read -r extra < "$folder/search_path" || true
  if [[ -n $extra && -z ${PANTS_PYTHON_BOOTSTRAP_SEARCH_PATH:-} ]]; then
    export PANTS_PYTHON_BOOTSTRAP_SEARCH_PATH="+[$extra]"
  fi
}
