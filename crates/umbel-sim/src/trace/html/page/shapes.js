// Each kind of packet has a shape and a colour of its own.

const PATHS = {
  data(path, x, y, r) {
    path.moveTo(x + r, y);
    path.arc(x, y, r, 0, 2 * Math.PI);
  },
  repair: polygon([[0, -1.25], [1.25, 0], [0, 1.25], [-1.25, 0]]),
  nak: polygon([[0, -1.25], [1.2, 0.9], [-1.2, 0.9]]),
  control: polygon([[-0.95, -0.95], [0.95, -0.95], [0.95, 0.95], [-0.95, 0.95]]),
  announcement: polygon(star(5, 1.4, 0.62)),
  session: polygon([[-1.2, -0.75], [1.2, -0.75], [1.2, 0.75], [-1.2, 0.75]]),
  other: polygon(star(6, 1.15, 1.15)),
};

function polygon(corners) {
  return (path, x, y, r) => {
    corners.forEach(([dx, dy], i) => {
      if (i === 0) path.moveTo(x + dx * r, y + dy * r); else path.lineTo(x + dx * r, y + dy * r);
    });
    path.closePath();
  };
}

function star(points, outer, inner) {
  return Array.from({ length: 2 * points }, (_, i) => {
    const angle = (i * Math.PI) / points - Math.PI / 2;
    const radius = i % 2 === 0 ? outer : inner;
    return [radius * Math.cos(angle), radius * Math.sin(angle)];
  });
}

function shapeOf(kind) {
  return PATHS[kind] ?? PATHS.other;
}

/** Draws a cross as on a map. */
function cross(path, x, y, r) {
  path.moveTo(x - r, y - r);
  path.lineTo(x + r, y + r);
  path.moveTo(x + r, y - r);
  path.lineTo(x - r, y + r);
}

/** Draws a circle struck through: no route. */
function barred(path, x, y, r) {
  path.moveTo(x + r * 1.25, y);
  path.arc(x, y, r * 1.25, 0, 2 * Math.PI);
  path.moveTo(x - r * 0.85, y + r * 0.85);
  path.lineTo(x + r * 0.85, y - r * 0.85);
}

/** Signs of drops. */
const DROP_SIGNS = { loss: cross, drop: cross, down: barred };

/** Colours of the current page, by name. */
class Palette {
  constructor() {
    this.refresh();
  }

  refresh() {
    this.style = getComputedStyle(document.documentElement);
    this.known = new Map();
  }

  get(name) {
    if (!this.known.has(name)) this.known.set(name, this.style.getPropertyValue(`--${name}`).trim());
    return this.known.get(name);
  }

  kind(kind) {
    return this.get(kind in PATHS ? kind : "other");
  }
}

/** Fits a canvas to the resolution of the screen. Returns its context, in units of the page. */
function fitCanvas(canvas) {
  const { width, height } = canvas.getBoundingClientRect();
  const scale = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  return { context, width, height };
}

/** Draws the sign of a kind or of a drop into a small canvas of the legend. */
function drawSign(canvas, palette, name) {
  const { context, width, height } = fitCanvas(canvas);
  context.clearRect(0, 0, width, height);
  const path = new Path2D();
  if (name in DROP_SIGNS) {
    DROP_SIGNS[name](path, width / 2, height / 2, 4);
    Object.assign(context, { strokeStyle: palette.get(name), lineWidth: 2.2, lineCap: "round" });
    context.stroke(path);
  } else {
    shapeOf(name)(path, width / 2, height / 2, 4.6);
    context.fillStyle = palette.kind(name);
    context.fill(path);
  }
}
