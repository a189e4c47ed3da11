super::q8_g32::group!(Q8G64, 64);
