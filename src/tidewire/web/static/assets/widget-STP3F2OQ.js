import{R as a,S as b}from"./chunk-JBOX4MO7.js";export{a as TidewireChat,b as define};
