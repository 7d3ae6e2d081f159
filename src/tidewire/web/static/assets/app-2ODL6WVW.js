import"./chunk-MLQKOY3K.js";
