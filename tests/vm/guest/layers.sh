# Layers of file systems that change the libraries of an image, for image_layers of make_root and for image_usr of container_json.

readonly libdir=usr/lib/x86_64-linux-gnu

# layer NAME: makes a directory for image_layers, and prints it.
layer() {
  rm -rf "/run/lab/layers/$1"
  mkdir -p "/run/lab/layers/$1/$libdir/libibverbs"
  echo "/run/lab/layers/$1"
}
# hide LAYER ROOT PATTERN: the layer hides the files of ROOT's libraries with such names.
hide() {
  local path
  for path in "$2/$libdir"/$3; do mknod "$1/$libdir/${path#"$2/$libdir/"}" c 0 0; done
}
# reject LAYER ROOT: in the layer, the provider of soft RoCE accepts the versions 6 to 8 of the kernel's ABI; the driver has 2.
reject() {
  local provider
  provider=$(cd "$2/$libdir" && ls libibverbs/librxe-rdmav*.so)
  python3 - "$2/$libdir/$provider" "$1/$libdir/$provider" << 'END'
import sys
with open(sys.argv[1], "rb") as file:
    library = file.read()
usual, other = b"\1\0\0\0\2\0\0\0", b"\6\0\0\0\10\0\0\0"
places = [at for at in range(0, len(library), 8) if library[at:at + 8] == usual]
assert len(places) == 1, places
with open(sys.argv[2], "wb") as file:
    file.write(library[:places[0]] + other + library[places[0] + 8:])
END
}
