globalThis.uPlot = uPlot; // where it is read as a module
